// A loaded CUDA kernel, and the operations for launches that need more than cuLaunchKernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "driver/cuda_api.h"

namespace opdock::cuda {

// Bytes of shared memory, static and dynamic together, that a kernel may use without raising its
// limit.
inline constexpr uint32_t kSharedWithoutAsking = 48 * 1024;
inline constexpr uint32_t kUnknown = UINT32_MAX;

// The object that a FunctionHandle points to.
struct LoadedKernel {
  Function function = nullptr;  // a CUkernel if the driver has libraries
  bool is_kernel = false;
  // The kernel as a function of one context. For a CUkernel the driver has to look it up,
  // which takes longer than the launch itself (1.2 us on an H200's host).
  Function in_context = nullptr;
  Context context = nullptr;
  Device device = 0;
  uint32_t flags = 0;  // OPDOCK_LAUNCH_… flags that its launches may have
  uint32_t num_params = kUnknown;
  std::vector<uint32_t> param_sizes;  // empty if num_params is kUnknown
  uint32_t static_shared = 0;
  uint32_t max_shared = 0;                // per block, static and dynamic
  std::atomic<uint32_t> shared_limit{0};  // dynamic bytes allowed so far
};

// Reads the kernel's parameters, if the driver (12.4 or newer) can report them.
void read_params(const Api& api, Function function, LoadedKernel* kernel);

// Returns which flags launches of a function of the current context may have. A programmatic launch
// needs code for sm_90 or newer, which waits for the previous kernel itself, and a driver of CUDA
// 12.3 or newer, because older ones cannot capture such launches into graphs. Without the flag a
// kernel begins after the previous one, which is also correct.
uint32_t allowed_flags(const Api& api, Function function);

// Raises the limit so that launches can use `bytes` of dynamic shared memory.
Status raise_shared(const Api& api, LoadedKernel* kernel, uint32_t bytes);

inline bool has_clusters(const opdock_launch& how) {
  return (how.cluster[0] | how.cluster[1] | how.cluster[2]) != 0;
}

// Launches with clusters or with `flags`, which replace how.flags.
Status launch_with_attributes(const Api& api, Function function, void* stream,
                              const opdock_launch& how, uint32_t flags);

}  // namespace opdock::cuda
