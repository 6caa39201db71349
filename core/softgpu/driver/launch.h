// Launches: checked as the drivers check them, recorded, and with "code" executed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "module.h"
#include "stream.h"

namespace softgpu {

struct LaunchRequest {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;
  uint32_t cluster[3] = {0, 0, 0};  // 0: none asked for
  bool cooperative = false;
  bool programmatic = false;    // may begin before the kernel before it has ended
  bool large_clusters = false;  // more than 8 blocks, which not every GPU can
  nlohmann::json attributes = nlohmann::json::object();  // for the record
  Stream* handle = nullptr;                              // the caller's, for the record
  void** arguments = nullptr;
  void** extra = nullptr;  // or: one buffer with all arguments (CUDA's END is 0, HIP's 3)
};

// Limits of a device that launches are checked against.
struct Limits {
  uint32_t shared_per_block = 49152;         // without asking
  uint32_t shared_per_block_optin = 101376;  // at most
  uint32_t shared_per_multiprocessor = 102400;
  uint32_t threads_per_multiprocessor = 2048;
  uint32_t blocks_per_multiprocessor = 16;
};
Limits limits_of(const Gpu& gpu);

// What a kernel's static shared memory may take. PTX: what a block has without asking, by CUDA's
// compilers; for one architecture alone, such as sm_90a, what it has at most. A cubin does not tell
// which of the two it was compiled for.
uint32_t most_static_shared(const Image& image, const Gpu& gpu);

// CUfunction_attribute: dynamic shared memory that launches may ask for.
inline constexpr int kMaxDynamicShared = 8;

// Blocks of the function that fit one multiprocessor.
uint32_t blocks_per_multiprocessor(const Gpu& gpu, uint32_t threads, uint32_t shared_bytes);

// Whether a launch keeps the limits of the device and of the function's image; explain()s which it
// breaks.
Result check_sizes(const Function& function, const LaunchRequest& request, const Gpu& gpu);
// The same for what only the executed kernel shows, or what tests of mere recording do not expect.
Result check_kernel(const Kernel& kernel, const Function& function, const LaunchRequest& request,
                    const Gpu& gpu);

// The function's parameters as its image describes them, else as the library that is executed does;
// false if neither does. Without the mutex.
bool parameters_of(Function* function, const Gpu& gpu, std::vector<Parameter>* out);

// Takes the mutex. `stream` is the one behind the handle.
Result launch_kernel(const std::shared_ptr<Stream>& stream, Function* function,
                     const LaunchRequest& request);

}  // namespace softgpu
