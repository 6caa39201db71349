// What the host checks of every tensor, quickly; the texts are made only when something is wrong.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "opdock/plugin.h"

namespace opdock {

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
TensorProblem check_tensor(const opdock_tensor* tensor, uint32_t flags);

// "found …, wanted …; what to do", for a problem that check_tensor gave.
std::string describe(TensorProblem problem, const opdock_tensor* tensor);

// Same memory, shape and strides.
bool same_view(const opdock_tensor& a, const opdock_tensor& b);

// Whether two tensors (both checked) may share bytes. Exact for contiguous tensors and for views
// that interleave with one common row stride; other interleaved views count as sharing.
bool may_share_memory(const opdock_tensor& a, const opdock_tensor& b);

// Whether two elements of this tensor (checked) may share an address: a stride of 0, or strides too
// small for the sizes below them.
bool may_overlap_itself(int32_t ndim, const int64_t* shape, const int64_t* strides);

// "[2, 3]".
std::string shape_text(int32_t ndim, const int64_t* values);

}  // namespace opdock
