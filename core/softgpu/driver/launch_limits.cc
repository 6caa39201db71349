// The limits of launches, and the reasons for refusing one.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "../engine/engine.h"
#include "launch.h"
#include "reason.h"

namespace softgpu {
namespace {

constexpr uint32_t kMaxThreads = 1024, kMaxBlockZ = 64, kMaxGridX = 2147483647, kMaxGridYZ = 65535;
constexpr uint32_t kPortableCluster = 8, kLargestCluster = 16;

uint64_t product(const uint32_t (&sizes)[3]) {
  return uint64_t{sizes[0]} * sizes[1] * sizes[2];
}

// Checks static and dynamic shared memory together. More than the default is allowed only if the
// kernel's limit was raised.
Result check_shared(const Function& function, uint32_t dynamic, const Gpu& gpu) {
  const uint64_t own = function.facts.static_shared;
  const auto raised = function.attributes.find(kMaxDynamicShared);
  const uint64_t own_most = most_static_shared(*function.image, gpu);
  const uint64_t most = raised != function.attributes.end()
                            ? own + static_cast<uint64_t>(raised->second)
                            : std::max<uint64_t>(limits_of(gpu).shared_per_block, own);
  if (own <= own_most && own + dynamic <= most) return kSuccess;
  explain(kInvalidValue, function.name + " has " + std::to_string(own) +
                             " bytes of static shared memory, and " + std::to_string(dynamic) +
                             " are asked for beside them: more than the " +
                             std::to_string(own > own_most ? own_most : most) + " of a block");
  return kInvalidValue;
}

// Explains which limit `asked` exceeds, and returns `result`.
Result refuse(Result result, const std::string& what, uint64_t asked, uint64_t most,
              const std::string& whose) {
  explain(result, what + " " + std::to_string(asked) + ": " +
                      (asked == 0 ? "none is empty" : "at most " + std::to_string(most) + whose));
  return result;
}

Result check_cluster(const LaunchRequest& request, const Gpu& gpu) {
  const uint64_t blocks = product(request.cluster);
  if (blocks == 0) return kSuccess;
  if (blocks > 1 && (gpu.amd || gpu.major < 9))
    return refuse(kNotSupported, "the cluster's blocks are", blocks, 1, " on " + gpu.arch);
  for (size_t i = 0; i < 3; ++i) {
    if (request.grid[i] % request.cluster[i] == 0) continue;
    explain(kInvalidValue, std::string("the grid's blocks in ") + "xyz"[i] + " are " +
                               std::to_string(request.grid[i]) + ": no multiple of the cluster's " +
                               std::to_string(request.cluster[i]));
    return kInvalidValue;
  }
  const uint64_t largest = request.large_clusters ? kLargestCluster : kPortableCluster;
  if (blocks <= largest) return kSuccess;
  return refuse(kInvalidClusterSize, "the cluster's blocks are", blocks, largest,
                request.large_clusters ? "" : " unless the kernel is allowed 16");
}

}  // namespace

Limits limits_of(const Gpu& gpu) {
  Limits limits;
  const auto configured = [&](int attribute, uint32_t* value) {
    const auto found = gpu.attributes.find(attribute);
    if (found != gpu.attributes.end()) *value = static_cast<uint32_t>(found->second);
  };
  if (gpu.amd) {  // hipDeviceAttribute_t
    limits = {65536, 65536, 65536, 2048, 32};
    configured(74, &limits.shared_per_block);
    limits.shared_per_block_optin = limits.shared_per_block;
    configured(10002, &limits.shared_per_multiprocessor);
    configured(57, &limits.threads_per_multiprocessor);
    configured(25, &limits.blocks_per_multiprocessor);
    return limits;
  }
  if (config().executes()) {
    const uint32_t kib = gpu.major == 8 && gpu.minor == 0   ? 164
                         : gpu.major >= 9 && gpu.major < 12 ? 228
                                                            : 100;
    limits.shared_per_multiprocessor = kib * 1024;
    limits.shared_per_block_optin = (kib - 1) * 1024;  // the system reserves 1 KiB
  }
  configured(8, &limits.shared_per_block);
  configured(97, &limits.shared_per_block_optin);
  configured(81, &limits.shared_per_multiprocessor);
  configured(39, &limits.threads_per_multiprocessor);
  configured(106, &limits.blocks_per_multiprocessor);
  return limits;
}

uint32_t most_static_shared(const Image& image, const Gpu& gpu) {
  const Limits limits = limits_of(gpu);
  const bool all = !gpu.amd && (!image.ptx || image.suffix == 'a');
  return all ? limits.shared_per_block_optin : limits.shared_per_block;
}

uint32_t blocks_per_multiprocessor(const Gpu& gpu, uint32_t threads, uint32_t shared_bytes) {
  const Limits limits = limits_of(gpu);
  const uint32_t warps = (threads + gpu.warp_size - 1) / gpu.warp_size;
  const uint32_t by_threads = limits.threads_per_multiprocessor / (warps * gpu.warp_size);
  const uint32_t by_shared = shared_bytes == 0 ? limits.blocks_per_multiprocessor
                                               : limits.shared_per_multiprocessor / shared_bytes;
  return std::min({by_threads, by_shared, limits.blocks_per_multiprocessor});
}

Result check_sizes(const Function& function, const LaunchRequest& request, const Gpu& gpu) {
  constexpr uint32_t kMaxBlocks[] = {kMaxGridX, kMaxGridYZ, kMaxGridYZ};
  constexpr uint32_t kMaxThreadsPerAxis[] = {kMaxThreads, kMaxThreads, kMaxBlockZ};
  for (size_t i = 0; i < 3; ++i) {
    const std::string in = std::string(" in ") + "xyz"[i];
    const uint32_t blocks = request.grid[i], threads = request.block[i];
    if (blocks == 0 || blocks > kMaxBlocks[i])
      return refuse(kInvalidValue, "the grid's blocks" + in + " are", blocks, kMaxBlocks[i], in);
    if (threads == 0 || threads > kMaxThreadsPerAxis[i])
      return refuse(kInvalidValue, "the block's threads" + in + " are", threads,
                    kMaxThreadsPerAxis[i], in);
  }
  if (product(request.block) > kMaxThreads)
    return refuse(kInvalidValue, "the block's threads are", product(request.block), kMaxThreads,
                  " in a block");
  return check_shared(function, request.shared_bytes, gpu);
}

Result check_kernel(const Kernel& kernel, const Function& function, const LaunchRequest& request,
                    const Gpu& gpu) {
  const uint64_t threads = product(request.block);
  const uint32_t bound = function.facts.max_threads != 0
                             ? std::min(function.facts.max_threads, kernel.max_threads)
                             : kernel.max_threads;
  if (threads > bound)
    return refuse(kLaunchOutOfResources, "the block's threads are", threads, bound,
                  " by the launch bound of " + function.name);
  if (const Result error = check_cluster(request, gpu)) return error;
  if (!request.cooperative) return kSuccess;
  const uint64_t room =
      uint64_t{gpu.multiprocessors} *
      blocks_per_multiprocessor(gpu, static_cast<uint32_t>(threads), request.shared_bytes);
  if (product(request.grid) <= room) return kSuccess;
  return refuse(
      kCooperativeLaunchTooLarge, "the cooperative grid's blocks are", product(request.grid), room,
      " are resident at once, on " + std::to_string(gpu.multiprocessors) + " multiprocessors");
}

}  // namespace softgpu
