// What the host checks of every tensor, quickly; the texts are made only when something is wrong.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "opdock/overlap.hpp"

namespace opdock {

using views::element_bytes;

enum class TensorProblem : uint8_t {
  kNone,
  kNull,        // no tensor behind the pointer
  kDimensions,  // ndim below 0 or above OPDOCK_MAX_NDIM
  kNoShape,     // shape NULL with ndim > 0
  kNoStrides,   // strides NULL with ndim > 0
  kDtype,       // no bits or no lanes
  kSize,        // a negative size
  kTooLarge,    // 2^63 or more elements, or bytes between the first and the last
  kNoData,      // data NULL with elements
  kDevice,      // no device type of this interface, or a negative index
};

// The tensor by itself. flags: of its opdock_value; with OPDOCK_VALUE_NO_DATA data may be NULL.
inline TensorProblem check_tensor(const opdock_tensor* tensor, uint32_t flags) {
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

// "found …, wanted …; what to do", for a problem that check_tensor gave.
std::string describe(TensorProblem problem, const opdock_tensor* tensor);

// Same memory, shape and strides.
bool same_view(const opdock_tensor& a, const opdock_tensor& b);

// "found strides … for shape …, by which several elements share an address", for a tensor (checked)
// that is to be written and in which that is so; else "". Where it takes too long to decide the
// text says so.
std::string self_overlap(int32_t ndim, const int64_t* shape, const int64_t* strides);

// "[2, 3]".
std::string shape_text(int32_t ndim, const int64_t* values);

}  // namespace opdock
