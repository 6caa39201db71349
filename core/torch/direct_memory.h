// Tensors and random numbers by torch's C++ interface.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "direct.h"

namespace opdock::torch {

// A handle is the address of an at::Tensor.
inline AtenTensorHandle handle_of(const at::Tensor& tensor) {
  return reinterpret_cast<AtenTensorHandle>(const_cast<at::Tensor*>(&tensor));
}

// Takes the tensor of a new handle.
inline at::Tensor take(AtenTensorHandle handle) {
  at::Tensor taken = std::move(*reinterpret_cast<at::Tensor*>(handle));
  aoti_torch_delete_tensor_object(handle);
  return taken;
}

// See Direct.
AtenTensorHandle allocate_directly(const opdock_output& output, int32_t dtype, opdock_device device,
                                   opdock_tensor* tensor);
void draw_directly(uint64_t count, opdock_device device, void* stream, opdock_generator* out,
                   AtenTensorHandle* seed);

}  // namespace opdock::torch
