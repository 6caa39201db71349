// The checks that the host makes of every tensor. They are fast; texts are made only on errors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "opdock/overlap.hpp"

namespace opdock {

using views::element_bytes;

enum class TensorProblem : uint8_t {
  kNone,
  kNull,        // the pointer to the tensor is NULL
  kDimensions,  // ndim below 0 or above OPDOCK_MAX_NDIM
  kNoShape,     // shape NULL with ndim > 0
  kNoStrides,   // strides NULL with ndim > 0
  kDtype,       // no bits or no lanes
  kSize,        // a negative size
  kTooLarge,    // 2^63 or more bytes, of all elements or from the first to the last
  kNoData,      // data is NULL, but there are elements
  kDevice,      // a device type that this interface does not have, or a negative index
};

// Checks one tensor by itself. flags: of its opdock_value; OPDOCK_VALUE_NO_DATA allows data of
// NULL. Always inlined: whether the compiler does it by itself depends on the other sources of a
// unity build, and a call costs 2 to 5% more without it.
[[gnu::always_inline]] inline TensorProblem check_tensor(const opdock_tensor* tensor,
                                                         uint32_t flags) {
  if (tensor == nullptr) return TensorProblem::kNull;
  const opdock_tensor& x = *tensor;
  if (x.ndim < 0 || x.ndim > OPDOCK_MAX_NDIM) return TensorProblem::kDimensions;
  if (x.ndim > 0 && x.shape == nullptr) return TensorProblem::kNoShape;
  if (x.ndim > 0 && x.strides == nullptr) return TensorProblem::kNoStrides;
  if (x.dtype.bits == 0 || x.dtype.lanes == 0) return TensorProblem::kDtype;
  if ((x.device.type != OPDOCK_CPU && x.device.type != OPDOCK_CUDA &&
       x.device.type != OPDOCK_ROCM) ||
      x.device.index < 0) {
    return TensorProblem::kDevice;
  }
  const int64_t bytes = static_cast<int64_t>(element_bytes(x.dtype));
  int64_t count = bytes;
  int64_t span = 0;  // elements from the lowest address to the highest
  bool empty = false, overflow = false;
  for (int32_t i = 0; i < x.ndim; ++i) {
    const int64_t size = x.shape[i];
    if (size < 0) return TensorProblem::kSize;
    empty = empty || size == 0;
    int64_t reach = 0, stride = x.strides[i];
    if (stride < 0) overflow = __builtin_sub_overflow(int64_t{0}, stride, &stride) || overflow;
    overflow = __builtin_mul_overflow(count, size, &count) || overflow;
    overflow = __builtin_mul_overflow(size - 1, stride, &reach) || overflow;
    overflow = __builtin_add_overflow(span, reach, &span) || overflow;
  }
  if (empty) return TensorProblem::kNone;
  overflow = __builtin_mul_overflow(span, bytes, &span) || overflow;
  if (overflow) return TensorProblem::kTooLarge;
  if (x.data == nullptr && (flags & OPDOCK_VALUE_NO_DATA) == 0) return TensorProblem::kNoData;
  return TensorProblem::kNone;
}

// Describes a problem that check_tensor() found: "found …, wanted …; what to do".
std::string describe(TensorProblem problem, const opdock_tensor* tensor);

// Returns whether both tensors have the same memory, dtype, shape and strides.
bool same_view(const opdock_tensor& a, const opdock_tensor& b);

// Checks a tensor that is to be written, and that check_tensor() has accepted. Returns "found
// strides … for shape …, by which several elements share an address" if they do, else "". If
// deciding takes too long, the text says so.
std::string self_overlap(int32_t ndim, const int64_t* shape, const int64_t* strides);

// Formats sizes or strides: "[2, 3]".
std::string shape_text(int32_t ndim, const int64_t* values);
inline std::string shape_text(const std::vector<int64_t>& values) {
  return shape_text(static_cast<int32_t>(values.size()), values.data());
}

}  // namespace opdock
