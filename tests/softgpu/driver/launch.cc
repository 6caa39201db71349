// SPDX-License-Identifier: Apache-2.0
#include "launch.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "reason.h"

namespace softgpu {
namespace {

constexpr uint32_t kMaxThreads = 1024, kMaxBlockZ = 64, kMaxGridX = 2147483647, kMaxGridYZ = 65535;
constexpr uint32_t kPortableCluster = 8, kLargestCluster = 16;

using Arguments = std::vector<std::vector<uint8_t>>;

uint64_t product(const uint32_t (&sizes)[3]) {
  return uint64_t{sizes[0]} * sizes[1] * sizes[2];
}

// One buffer with all arguments: {1, buffer, 2, &size, end}.
const uint8_t* packed_arguments(void** extra) {
  constexpr uintptr_t kBuffer = 1, kSize = 2;
  const uint8_t* buffer = nullptr;
  if (!extra) return nullptr;
  for (; reinterpret_cast<uintptr_t>(*extra) == kBuffer ||
         reinterpret_cast<uintptr_t>(*extra) == kSize;
       extra += 2) {
    if (reinterpret_cast<uintptr_t>(*extra) == kBuffer) {
      buffer = static_cast<const uint8_t*>(extra[1]);
    }
  }
  return buffer;
}

// A copy of each argument; false if there are none though the kernel has parameters.
bool copy_arguments(const std::vector<Parameter>& parameters, const LaunchRequest& request,
                    Arguments* out) {
  const uint8_t* const packed = packed_arguments(request.extra);
  if (!packed && !request.arguments) return parameters.empty();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const uint8_t* const from =
        packed ? packed + parameters[i].offset : static_cast<const uint8_t*>(request.arguments[i]);
    out->emplace_back(from, from + parameters[i].size);
  }
  return true;
}

std::string hex_bytes(const std::vector<uint8_t>& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// Null where the image does not tell the sizes.
nlohmann::json recorded_arguments(const Function& function, const LaunchRequest& request) {
  Arguments arguments;
  if (function.facts.parameters.empty() || !request.arguments) return nullptr;
  copy_arguments(function.facts.parameters, request, &arguments);
  nlohmann::json list = nlohmann::json::array();
  for (const std::vector<uint8_t>& argument : arguments) list.push_back(hex_bytes(argument));
  return list;
}

// Static and dynamic shared memory together; more than usual only where it was asked for.
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

Result check_sizes(const Function& function, const LaunchRequest& request, const Gpu& gpu) {
  const uint64_t threads = product(request.block);
  const bool grid = product(request.grid) > 0 && request.grid[0] <= kMaxGridX &&
                    request.grid[1] <= kMaxGridYZ && request.grid[2] <= kMaxGridYZ;
  const bool block = threads > 0 && threads <= kMaxThreads && request.block[2] <= kMaxBlockZ;
  return grid && block ? check_shared(function, request.shared_bytes, gpu) : kInvalidValue;
}

Result check_cluster(const LaunchRequest& request, const Gpu& gpu) {
  if (product(request.cluster) == 0) return kSuccess;
  if (product(request.cluster) > 1 && (gpu.amd || gpu.major < 9)) return kNotSupported;
  for (int i = 0; i < 3; ++i) {
    if (request.grid[i] % request.cluster[i] != 0) return kInvalidValue;
  }
  const uint64_t largest = request.large_clusters ? kLargestCluster : kPortableCluster;
  return product(request.cluster) <= largest ? kSuccess : kInvalidClusterSize;
}

// What only the executed kernel tells, or what tests of mere recording do not expect.
Result check_kernel(const Kernel& kernel, const Function& function, const LaunchRequest& request,
                    const Gpu& gpu) {
  const uint64_t threads = product(request.block);
  const uint32_t bound = function.facts.max_threads != 0
                             ? std::min(function.facts.max_threads, kernel.max_threads)
                             : kernel.max_threads;
  if (threads > bound) return kLaunchOutOfResources;
  if (const Result error = check_cluster(request, gpu)) return error;
  if (!request.cooperative) return kSuccess;
  const uint64_t room =
      uint64_t{gpu.multiprocessors} *
      blocks_per_multiprocessor(gpu, static_cast<uint32_t>(threads), request.shared_bytes);
  return product(request.grid) <= room ? kSuccess : kCooperativeLaunchTooLarge;
}

// As compilers lay them out: each at a multiple of its alignment, of which only its size tells.
std::vector<Parameter> laid_out(const std::vector<uint32_t>& sizes) {
  std::vector<Parameter> parameters;
  uint32_t offset = 0;
  for (const uint32_t size : sizes) {
    const uint32_t alignment = size % 8 == 0 ? 8 : size % 4 == 0 ? 4 : size % 2 == 0 ? 2 : 1;
    offset = (offset + alignment - 1) / alignment * alignment;
    parameters.push_back({offset, size});
    offset += size;
  }
  return parameters;
}

// The library that is executed must be what the image was made of.
bool same_parameters(const std::vector<Parameter>& parameters, const Kernel& kernel) {
  const bool same = std::equal(
      parameters.begin(), parameters.end(), kernel.param_sizes.begin(), kernel.param_sizes.end(),
      [](const Parameter& parameter, uint32_t size) { return parameter.size == size; });
  if (!same) {
    const std::string reason = kernel.expression +
                               " has other parameters in the image than in the source that the "
                               "code folder names; fill the folder anew";
    std::fprintf(stderr, "softgpu: %s\n", reason.c_str());
    explain(kInvalidImage, reason);
  }
  return same;
}

// The function belongs to the stream's device, and its image fits it; a kernel of a library is
// bound to the device now.
Result check_function(const Function& function, const DeviceContext& context) {
  const DeviceContext* const own = function.module ? function.module->context : nullptr;
  if (own && own != &context) return kInvalidHandle;
  return check_image(*function.image, *context.gpu);
}

Result submit_launch(Stream* stream, const Kernel& kernel, const LaunchRequest& request,
                     uint32_t most_static, Arguments arguments) {
  Launch launch;
  launch.kernel = &kernel;
  for (int i = 0; i < 3; ++i) {
    launch.grid[i] = request.grid[i];
    launch.block[i] = request.block[i];
    launch.cluster[i] = std::max(request.cluster[i], 1u);
  }
  launch.shared_bytes = request.shared_bytes;
  launch.most_static_shared = most_static;
  launch.cooperative = request.cooperative;
  launch.args = std::move(arguments);
  return submit(stream, kernel.expression,
                [launch](const Operation& operation) { return execute(operation, launch); });
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
    limits.shared_per_block_optin = (kib - 1) * 1024;  // one is the system's
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

bool parameters_of(Function* function, const Gpu& gpu, std::vector<Parameter>* out) {
  if (function->facts.known) {
    *out = function->facts.parameters;
    return true;
  }
  const Kernel* const kernel = config().executes() ? code_of(function, gpu) : nullptr;
  if (kernel) *out = laid_out(kernel->param_sizes);
  return kernel != nullptr;
}

Result launch_kernel(const std::shared_ptr<Stream>& stream, Function* function,
                     const LaunchRequest& request) {
  const DeviceContext& context = *stream->context;
  const Gpu& gpu = *context.gpu;
  {
    const Lock lock = lock_state();
    if (const Result error = check_sizes(*function, request, gpu)) return error;
    if (const Result error = check_function(*function, context)) return error;
    record("launch", {{"function", function->name},
                      {"device", context.device},
                      {"grid", request.grid},
                      {"block", request.block},
                      {"shared", request.shared_bytes},
                      {"stream", handle_text(request.handle)},
                      {"attributes", request.attributes},
                      {"extra", request.extra != nullptr},
                      {"args", recorded_arguments(*function, request)}});
  }
  if (!config().executes()) return kSuccess;
  const Kernel* const kernel = code_of(function, gpu);  // may compile: without the mutex
  if (!kernel) return kNotFound;
  if (const Result error = check_kernel(*kernel, *function, request, gpu)) return error;
  std::vector<Parameter> parameters;
  Arguments arguments;
  parameters_of(function, gpu, &parameters);
  if (!same_parameters(parameters, *kernel)) return kInvalidImage;
  if (!copy_arguments(parameters, request, &arguments)) return kInvalidValue;
  const Lock lock = lock_state();
  return submit_launch(stream.get(), *kernel, request, most_static_shared(*function->image, gpu),
                       std::move(arguments));
}

}  // namespace softgpu
