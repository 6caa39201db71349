// A loaded CUDA kernel, and what launching it takes beyond a plain launch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "driver/cuda_api.h"

namespace opdock::cuda {

// Static and dynamic shared memory together that every launch gets.
inline constexpr uint32_t kSharedWithoutAsking = 48 * 1024;
inline constexpr uint32_t kUnknown = UINT32_MAX;

// Behind a FunctionHandle.
struct LoadedKernel {
  Function function = nullptr;  // a CUkernel where the driver has libraries
  bool is_kernel = false;
  // The same as a function of one context: looking it up for a CUkernel takes the driver longer
  // than the launch itself (1.2 us on an H200's host).
  Function in_context = nullptr;
  Context context = nullptr;
  Device device = 0;
  uint32_t flags = 0;  // OPDOCK_LAUNCH_…: those that its launches may have
  uint32_t num_params = kUnknown;
  std::vector<uint32_t> param_sizes;  // unless kUnknown
  uint32_t static_shared = 0;
  uint32_t max_shared = 0;                // of a block, static and dynamic
  std::atomic<uint32_t> shared_limit{0};  // dynamic, as far as it was asked for
};

// Reads the kernel's parameters, where the driver (12.4) can tell.
void read_params(const Api& api, Function function, LoadedKernel* kernel);

// Which flags launches of a function of the current context may have. Only code for sm_90 waits for
// the launch before, and only drivers since 12.3 have such launches in graphs; without the flag
// they begin after it, which is as correct.
uint32_t allowed_flags(const Api& api, Function function);

// Lets launches have so many bytes of dynamic shared memory.
Status raise_shared(const Api& api, LoadedKernel* kernel, uint32_t bytes);

inline bool has_clusters(const opdock_launch& how) {
  return (how.cluster[0] | how.cluster[1] | how.cluster[2]) != 0;
}

// A launch with clusters or with flags, these in the place of how's.
Status launch_with_attributes(const Api& api, Function function, void* stream,
                              const opdock_launch& how, uint32_t flags);

}  // namespace opdock::cuda
