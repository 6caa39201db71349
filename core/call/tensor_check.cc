// SPDX-License-Identifier: Apache-2.0
#include "call/tensor_check.h"

#include "base/quantity.h"
#include "schema/dtype.h"

namespace opdock {

std::string describe(TensorProblem problem, const opdock_tensor* tensor) {
  switch (problem) {
    case TensorProblem::kNone:
      return "";
    case TensorProblem::kNull:
      return "found no tensor behind the pointer, wanted one; pass a tensor";
    case TensorProblem::kDimensions:
      return "found " + quantity(tensor->ndim, "dimension") + ", wanted 0 to " +
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

std::string self_overlap(int32_t ndim, const int64_t* shape, const int64_t* strides) {
  const views::Overlap found = views::shared_elements(ndim, shape, strides);
  if (found == views::Overlap::kNone) [[likely]]
    return {};
  return "found strides " + shape_text(ndim, strides) + " for shape " + shape_text(ndim, shape) +
         (found == views::Overlap::kShared
              ? ", by which several elements share an address"
              : ", of which it takes too long to tell whether several elements share an address");
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
