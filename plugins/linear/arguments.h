// Argument checks of this plugin's ops, and tensors in their workspace.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <opdock/op.hpp>

namespace linear {

using namespace opdock::usual;
using opdock::CallBase;
using opdock::check_row_vector;

// Checks that x is float32, float16 or bfloat16; products are added up in float32 on the CPU too.
// Like all checks here, it throws an Error that names the argument.
void check_input(Tensor x, const char* name);
// Refuses an argument that other arguments make meaningless. why: which arguments these are.
[[noreturn]] void refuse(const char* name, const char* why);
// Checks a matrix, whose rows must not share elements, as products require.
void check_matrix(Tensor tensor, const char* name);
// Checks that no stride is negative.
void check_forward(Tensor tensor, const char* name);
// Returns OPDOCK_GEMM_NONE, …, for the activation of that name.
uint32_t activation_of(std::string_view name);

// A tensor with another tensor's dtype and leading dimensions and `length` elements in the last
// dimension. It lies at `data`, which may be null while planning; its rows are `stride` elements
// apart, or contiguous if that is 0.
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
