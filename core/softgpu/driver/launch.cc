// SPDX-License-Identifier: Apache-2.0
#include "launch.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "reason.h"

namespace softgpu {
namespace {

using Arguments = std::vector<std::vector<uint8_t>>;

// Finds the buffer with all arguments in a list {1, buffer, 2, &size, end}.
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

// Copies each argument. Returns false if there are none although the kernel has parameters.
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

nlohmann::json recorded_attributes(const LaunchRequest& request) {
  nlohmann::json attributes(request.attributes);
  if (request.attributes.count("cluster")) attributes["cluster"] = request.cluster;
  return attributes;
}

// Returns null if the image does not tell the parameters' sizes.
nlohmann::json recorded_arguments(const Function& function, const LaunchRequest& request) {
  Arguments arguments;
  if (function.facts.parameters.empty() || !request.arguments) return nullptr;
  copy_arguments(function.facts.parameters, request, &arguments);
  nlohmann::json list = nlohmann::json::array();
  for (const std::vector<uint8_t>& argument : arguments) list.push_back(hex_bytes(argument));
  return list;
}

// Computes the parameters' offsets as compilers do: each is a multiple of the alignment, which
// follows from the size.
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

// The executed library must be made from the same source as the image.
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

// Checks that the function belongs to the stream's device and that its image fits the device. A
// kernel of a library has no device of its own.
Result check_function(const Function& function, const DeviceContext& context) {
  const DeviceContext* const own = function.module ? function.module->context : nullptr;
  if (own && own != &context) return kInvalidHandle;
  return check_image(*function.image, *context.gpu);
}

// Returns all values in the arguments that may be addresses, at any position in a parameter.
std::vector<uintptr_t> addresses_in(const Arguments& arguments) {
  std::vector<uintptr_t> all;
  for (const std::vector<uint8_t>& argument : arguments) {
    for (size_t at = 0; at + sizeof(uintptr_t) <= argument.size(); at += sizeof(uintptr_t)) {
      std::memcpy(&all.emplace_back(), argument.data() + at, sizeof(uintptr_t));
    }
  }
  return all;
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
  Work work{kernel.expression, {}, addresses_in(launch.args)};
  work.kernel = true;
  work.programmatic = request.programmatic;
  work.action = [launch](const Operation& operation) { return execute(operation, launch); };
  return submit(stream, std::move(work));
}

}  // namespace

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
    record_object("launch", {{"function", function->name},
                             {"device", context.device},
                             {"grid", request.grid},
                             {"block", request.block},
                             {"shared", request.shared_bytes},
                             {"stream", handle_text(request.handle)},
                             {"attributes", recorded_attributes(request)},
                             {"extra", request.extra != nullptr},
                             {"args", recorded_arguments(*function, request)}});
  }
  if (!config().executes()) return kSuccess;
  const Kernel* const kernel = code_of(function, gpu);  // without the mutex, because it may compile
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
