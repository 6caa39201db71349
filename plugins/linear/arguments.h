// What the ops of this plugin check of their arguments, and tensors in their workspace.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <opdock/row_op.hpp>

namespace linear {

using opdock::Call;
using opdock::CallBase;
using opdock::check;
using opdock::Dtype;
using opdock::Plan;
using opdock::Results;
using opdock::Tensor;
using OptionalTensor = std::optional<Tensor>;

// float32, float16 or bfloat16, on the CPU too: products are added up in float32. Throws an Error
// that names the argument, as all of these do.
void check_input(Tensor x, const char* name, int32_t least_ndim = 1);
// Of x's dtype and device.
void check_like(Tensor tensor, const char* name, Tensor x, const char* x_name);
// Of one number for each of `size` columns, beside x.
void check_vector(const OptionalTensor& tensor, const char* name, Tensor x, int64_t size);
// An argument that others make meaningless. why: what they are.
[[noreturn]] void refuse(const char* name, const char* why);
// A matrix whose rows share no element, as products want it.
void check_matrix(Tensor tensor, const char* name);
// No dimension goes backwards.
void check_forward(Tensor tensor, const char* name);
// OPDOCK_GEMM_NONE, ….
uint32_t activation_of(std::string_view name);

// A tensor with the dtype and the leading dimensions of another one and `length` elements in the
// last, at `data`, which may be null while planning; its rows `stride` elements apart, or 0:
// without gaps.
class Buffer {
 public:
  Buffer(Tensor like, int64_t length, void* data, int64_t stride = 0);
  Buffer(const Buffer&) = delete;  // the tensor points into it
  Buffer& operator=(const Buffer&) = delete;

  Tensor tensor() const { return Tensor(&tensor_, tensor_.data ? 0 : OPDOCK_VALUE_NO_DATA); }

 private:
  int64_t shape_[OPDOCK_MAX_NDIM], strides_[OPDOCK_MAX_NDIM];
  opdock_tensor tensor_ = {};
};

}  // namespace linear
