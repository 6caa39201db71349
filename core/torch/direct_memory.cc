// SPDX-License-Identifier: Apache-2.0
#include "direct_memory.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <dlfcn.h>

#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace opdock::torch {

namespace {

// Allocates on a GPU; torch's library for GPUs has it.
using EmptyCuda = at::TensorBase(at::IntArrayRef sizes, at::ScalarType dtype,
                                 std::optional<at::Device> device,
                                 std::optional<at::MemoryFormat> format);

EmptyCuda* find_empty_cuda() {
  for (const char* name : {"libtorch_cuda.so", "libtorch_hip.so"}) {
    void* const library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    return reinterpret_cast<EmptyCuda*>(
        dlsym(library,
              "_ZN2at6detail10empty_cudaEN3c108ArrayRefIlEENS1_10ScalarTypeESt8optional"
              "INS1_6DeviceEES5_INS1_12MemoryFormatEE"));
  }
  return nullptr;
}

// Returns whether a stream of a GPU is being captured, by the driver that torch has loaded.
bool is_capturing(void* stream) {
  using Ask = int(void* stream, int* state);
  static Ask* const ask = [] {
    for (const auto& [file, name] : {std::pair("libcuda.so.1", "cuStreamIsCapturing"),
                                     std::pair("libamdhip64.so", "hipStreamIsCapturing")}) {
      void* const library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
      if (library != nullptr) return reinterpret_cast<Ask*>(dlsym(library, name));
    }
    return static_cast<Ask*>(nullptr);
  }();
  int state = 0;
  return ask != nullptr && ask(stream, &state) == 0 && state != 0;
}

}  // namespace

AtenTensorHandle allocate_directly(const opdock_output& output, int32_t dtype, opdock_device device,
                                   opdock_tensor* tensor) {
  const at::IntArrayRef sizes(output.shape, static_cast<size_t>(output.ndim));
  const auto type = static_cast<at::ScalarType>(dtype);
  try {
    at::TensorBase made;
    if (device.type == OPDOCK_CPU) {
      made = at::detail::empty_cpu(sizes, type);
    } else {
      static EmptyCuda* const empty_cuda = find_empty_cuda();
      if (empty_cuda == nullptr) return nullptr;
      const auto index = static_cast<c10::DeviceIndex>(device.index);
      made = empty_cuda(sizes, type, at::Device(at::kCUDA, index), std::nullopt);
    }
    auto owned = std::make_unique<at::Tensor>(std::move(made));
    *tensor = {owned->mutable_data_ptr(),
               device,
               output.ndim,
               output.dtype,
               const_cast<int64_t*>(owned->sizes().data()),
               const_cast<int64_t*>(owned->strides().data()),
               0};
    return handle_of(*owned.release());
  } catch (const std::exception&) {
    return nullptr;
  }
}

void draw_directly(uint64_t count, opdock_device device, void* stream, opdock_generator* out,
                   AtenTensorHandle* seed) {
  const at::Device where = device.type == OPDOCK_CPU
                               ? at::Device(at::kCPU)
                               : at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device.index));
  const bool on_cpu = where.is_cpu();
  if (on_cpu || is_capturing(stream)) {
    at::Tensor drawn = at::empty({}, at::TensorOptions(where).dtype(at::kLong));
    drawn.random_();
    if (on_cpu) {  // torch's generator of the CPU has no position
      out->seed = static_cast<uint64_t>(*drawn.const_data_ptr<int64_t>());
      return;
    }
    out->device_seed = static_cast<const uint64_t*>(drawn.const_data_ptr());
    *seed = handle_of(*new at::Tensor(std::move(drawn)));
    return;
  }
  at::Generator generator = at::globalContext().defaultGenerator(where);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  out->seed = generator.current_seed();
  out->offset = generator.get_offset();
  generator.set_offset(out->offset + (count + 3) / 4 * 4);  // torch takes multiples of 4 only
}

}  // namespace opdock::torch
