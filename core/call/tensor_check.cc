// SPDX-License-Identifier: Apache-2.0
#include "call/tensor_check.h"

#include <algorithm>

#include "call/dtype.h"

namespace opdock {
namespace {

struct Extent {  // bytes [low, high) that the elements touch; empty if there is none
  uintptr_t low;
  uintptr_t high;
  bool empty() const { return low == high; }
};

Extent extent(const opdock_tensor& x) {
  uintptr_t low = reinterpret_cast<uintptr_t>(x.data) + static_cast<uintptr_t>(x.byte_offset);
  uintptr_t high = low;
  uint64_t bytes = element_bytes(x.dtype);
  for (int32_t i = 0; i < x.ndim; ++i) {
    if (x.shape[i] == 0) return {low, low};
    int64_t reach = (x.shape[i] - 1) * x.strides[i];  // check_tensor has excluded overflow
    if (reach < 0) {
      low -= static_cast<uint64_t>(-reach) * bytes;
    } else {
      high += static_cast<uint64_t>(reach) * bytes;
    }
  }
  return {low, high + bytes};
}

// The largest stride in bytes, and the extent of one step of that dimension.
struct Rows {
  uint64_t stride = 0;
  uint64_t inner = 0;
};

Rows rows(const opdock_tensor& x) {
  int32_t outer = -1;
  for (int32_t i = 0; i < x.ndim; ++i) {
    if (x.shape[i] < 2) continue;
    if (x.strides[i] < 0) return {};
    if (outer < 0 || x.strides[i] > x.strides[outer]) outer = i;
  }
  if (outer < 0) return {};
  uint64_t bytes = element_bytes(x.dtype);
  Rows result{static_cast<uint64_t>(x.strides[outer]) * bytes, bytes};
  for (int32_t i = 0; i < x.ndim; ++i) {
    if (i != outer) result.inner += static_cast<uint64_t>((x.shape[i] - 1) * x.strides[i]) * bytes;
  }
  return result;
}

}  // namespace

std::string describe(TensorProblem problem, const opdock_tensor* tensor) {
  switch (problem) {
    case TensorProblem::kNone:
      return "";
    case TensorProblem::kNull:
      return "found no tensor behind the pointer, wanted one; pass a tensor";
    case TensorProblem::kDimensions:
      return "found " + std::to_string(tensor->ndim) + " dimensions, wanted 0 to " +
             std::to_string(OPDOCK_MAX_NDIM) + "; reshape it";
    case TensorProblem::kNoShape:
      return "found a shape of NULL, wanted its sizes; fill it in";
    case TensorProblem::kNoStrides:
      return "found strides of NULL, wanted them in elements; fill them in (DLPack allows NULL for "
             "a "
             "contiguous tensor, Opdock does not)";
    case TensorProblem::kDtype:
      return "found " + to_text(tensor->dtype) +
             ", wanted at least 1 bit and 1 lane; fill in dtype";
    case TensorProblem::kSize:
      return "found shape " + shape_text(tensor->ndim, tensor->shape) +
             ", wanted no negative size; correct it";
    case TensorProblem::kTooLarge:
      return "found shape " + shape_text(tensor->ndim, tensor->shape) + " and strides " +
             shape_text(tensor->ndim, tensor->strides) +
             ", wanted fewer than 2^63 bytes; correct them";
    case TensorProblem::kNoData:
      return "found data NULL with shape " + shape_text(tensor->ndim, tensor->shape) +
             ", wanted memory (a ZeroTensor or a functionalised tensor has none); make a real copy";
    case TensorProblem::kDevice:
      return "found " + to_text(tensor->device) + ", wanted a CPU, CUDA or ROCm device; move it";
  }
  return "";
}

bool same_view(const opdock_tensor& a, const opdock_tensor& b) {
  if (static_cast<char*>(a.data) + a.byte_offset != static_cast<char*>(b.data) + b.byte_offset ||
      a.ndim != b.ndim || !same(a.dtype, b.dtype)) {
    return false;
  }
  for (int32_t i = 0; i < a.ndim; ++i) {
    if (a.shape[i] != b.shape[i] || (a.shape[i] > 1 && a.strides[i] != b.strides[i])) return false;
  }
  return true;
}

bool may_share_memory(const opdock_tensor& a, const opdock_tensor& b) {
  if (a.data == nullptr || b.data == nullptr) return false;
  Extent x = extent(a), y = extent(b);
  if (x.empty() || y.empty() || x.high <= y.low || y.high <= x.low) return false;
  // Column slices of one matrix: equal row strides, and disjoint within a row.
  Rows p = rows(a), q = rows(b);
  if (p.stride == 0 || p.stride != q.stride || p.inner > p.stride || q.inner > q.stride)
    return true;
  uint64_t shift = y.low >= x.low ? (y.low - x.low) % p.stride
                                  : (p.stride - (x.low - y.low) % p.stride) % p.stride;
  // In units of one row, a starts at 0 and b at `shift`: disjoint if b fits behind a.
  return !(p.inner <= shift && shift + q.inner <= p.stride);
}

bool may_overlap_itself(int32_t ndim, const int64_t* shape, const int64_t* strides) {
  int64_t dense = 1;  // contiguous is the usual case
  bool contiguous = true;
  for (int32_t i = ndim - 1; i >= 0; --i) {
    if (shape[i] == 0) return false;
    if (shape[i] == 1) continue;
    if (strides[i] != dense) {
      contiguous = false;
      break;
    }
    dense *= shape[i];
  }
  if (contiguous) return false;
  int32_t order[OPDOCK_MAX_NDIM];
  int32_t count = 0;
  for (int32_t i = 0; i < ndim; ++i) {
    if (shape[i] == 0) return false;
    if (shape[i] > 1) order[count++] = i;
  }
  auto magnitude = [&](int32_t i) { return strides[i] < 0 ? -strides[i] : strides[i]; };
  std::sort(order, order + count,
            [&](int32_t i, int32_t j) { return magnitude(i) < magnitude(j); });
  int64_t reach = 0;
  for (int32_t k = 0; k < count; ++k) {
    if (magnitude(order[k]) <= reach) return true;
    reach += (shape[order[k]] - 1) * magnitude(order[k]);
  }
  return false;
}

std::string shape_text(int32_t ndim, const int64_t* values) {
  std::string text = "[";
  for (int32_t i = 0; i < ndim; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(values[i]);
  }
  return text + "]";
}

}  // namespace opdock
