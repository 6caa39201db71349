// Launches: checked as the drivers check them, recorded, and executed if "code" is configured.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "module.h"
#include "stream.h"

namespace softgpu {

struct LaunchRequest {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;
  uint32_t cluster[3] = {0, 0, 0};  // 0: no cluster is requested
  bool cooperative = false;
  bool programmatic = false;    // may begin before the previous kernel has ended
  bool large_clusters = false;  // allows more than 8 blocks, which not every GPU supports
  std::map<std::string, bool> attributes = {};  // for the record
  Stream* handle = nullptr;                     // the handle that the caller passed, for the record
  void** arguments = nullptr;
  void** extra = nullptr;  // alternatively one buffer with all arguments (CUDA's END is 0, HIP's 3)
};

// A device's limits for launches.
struct Limits {
  uint32_t shared_per_block = 49152;         // without raising the kernel's limit
  uint32_t shared_per_block_optin = 101376;  // maximum
  uint32_t shared_per_multiprocessor = 102400;
  uint32_t threads_per_multiprocessor = 2048;
  uint32_t blocks_per_multiprocessor = 16;
};
Limits limits_of(const Gpu& gpu);

// Returns how much static shared memory a kernel may have. For PTX, CUDA's compilers allow
// shared_per_block, and shared_per_block_optin for code that runs on only one architecture, such as
// sm_90a. A cubin does not tell which of the two it was compiled for, so the larger one applies.
uint32_t most_static_shared(const Image& image, const Gpu& gpu);

// A CUfunction_attribute: the limit of dynamic shared memory for the kernel's launches.
inline constexpr int kMaxDynamicShared = 8;

// Returns how many blocks fit on one multiprocessor.
uint32_t blocks_per_multiprocessor(const Gpu& gpu, uint32_t threads, uint32_t shared_bytes);

// Checks a launch against the limits of the device and of the function's image; explain()s the
// limit that it exceeds.
Result check_sizes(const Function& function, const LaunchRequest& request, const Gpu& gpu);
// Does the same for limits that only the executed kernel shows, or that tests without execution do
// not expect.
Result check_kernel(const Kernel& kernel, const Function& function, const LaunchRequest& request,
                    const Gpu& gpu);

// Sets the function's parameters as the image describes them, else as the executed library does.
// Returns false if neither does. The caller must not hold the mutex.
bool parameters_of(Function* function, const Gpu& gpu, std::vector<Parameter>* out);

// Locks the mutex itself. `stream` is the stream of the handle.
Result launch_kernel(const std::shared_ptr<Stream>& stream, Function* function,
                     const LaunchRequest& request);

}  // namespace softgpu
