// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <opdock/gemm.h>

#include <algorithm>
#include <iterator>

namespace linear {

using opdock::detail::list_text;

void check_input(Tensor x, const char* name) {
  check(x, name).dtype(dtype_of<float>(), dtype_of<opdock::half>(), dtype_of<opdock::bfloat16>());
  check_forward(x, name);
}

void refuse(const char* name, const char* why) {
  throw Error(OPDOCK_INVALID_ARGUMENT,
              concat("argument '", name, "': found a tensor, wanted None ", why, "; leave it out"));
}

void check_matrix(Tensor tensor, const char* name) {
  check(tensor, name).ndim(2);
  opdock::check_rows(tensor, name);
  if (tensor.is_empty() || tensor.size(0) == 1 || tensor.stride(0) >= tensor.size(1)) return;
  throw Error(
      OPDOCK_UNSUPPORTED,
      concat("argument '", name, "': found strides ", list_text(tensor.strides(), 2), " for shape ",
             tensor.shape_text(), ", wanted rows that share no element; make it contiguous first"));
}

void check_forward(Tensor tensor, const char* name) {
  if (tensor.is_empty()) return;
  for (int32_t i = 0; i < tensor.ndim(); ++i) {
    if (tensor.size(i) == 1 || tensor.stride(i) >= 0) continue;
    throw Error(OPDOCK_UNSUPPORTED,
                concat("argument '", name, "': found strides ",
                       list_text(tensor.strides(), tensor.ndim()), " for shape ",
                       tensor.shape_text(), ", wanted none below 0; make it contiguous first"));
  }
}

uint32_t activation_of(std::string_view name) {
  constexpr std::string_view names[] = {"none", "relu", "gelu", "gelu_tanh", "silu"};
  static_assert(OPDOCK_GEMM_NONE == 0 && OPDOCK_GEMM_SILU + 1 == std::size(names));
  const auto* const found = std::find(std::begin(names), std::end(names), name);
  if (found != std::end(names)) return static_cast<uint32_t>(found - names);
  throw Error(OPDOCK_INVALID_ARGUMENT,
              concat("argument 'activation': found \"", name,
                     "\", wanted \"none\", \"relu\", \"gelu\", \"gelu_tanh\" or \"silu\""));
}

Buffer::Buffer(Tensor like, int64_t length, void* data, int64_t stride_of_rows) {
  std::copy_n(like.shape(), like.ndim(), shape_);
  shape_[like.ndim() - 1] = length;
  int64_t stride = 1;
  for (int32_t i = like.ndim() - 1; i >= 0; --i) {
    strides_[i] = stride;
    const bool is_last = i == like.ndim() - 1 && stride_of_rows > 0;
    stride *= is_last ? stride_of_rows : std::max<int64_t>(shape_[i], 1);
  }
  tensor_.data = data;
  tensor_.device = like.device();
  tensor_.ndim = like.ndim();
  tensor_.dtype = like.dtype();
  tensor_.shape = shape_;
  tensor_.strides = strides_;
}

}  // namespace linear
