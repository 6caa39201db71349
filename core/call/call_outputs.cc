// Checks of the outputs that plan answered and of the outputs that run will write.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "base/quantity.h"
#include "call/call.h"
#include "call/tensor_check.h"
#include "schema/dtype.h"

namespace opdock {
namespace {

constexpr uint64_t kMaxAlignment = uint64_t{1} << 30;

[[gnu::cold, gnu::noinline]] opdock_status refuse(const opdock_function& function, uint32_t output,
                                                  const ErrorBuffer& error,
                                                  const std::string& text) {
  error.write(function.schema().name, ": output ", std::to_string(output) + ": " + text);
  return OPDOCK_INVALID_ARGUMENT;
}

bool is_planned(const opdock_tensor& x, const opdock_output& planned, opdock_device device) {
  if (!same(x.dtype, planned.dtype) || !same(x.device, device) || x.ndim != planned.ndim) {
    return false;
  }
  for (int32_t i = 0; i < x.ndim; ++i) {
    if (x.shape[i] != planned.shape[i]) return false;
  }
  return true;
}

std::string kind_of(opdock_dtype dtype, int32_t ndim, const int64_t* shape, opdock_device device) {
  return to_text(dtype) + " " + shape_text(ndim, shape) + " on " + to_text(device);
}

}  // namespace

void set_strides(const opdock_output& output, int64_t* strides) {
  int64_t stride = 1;
  for (int32_t i = std::min(output.ndim, OPDOCK_MAX_NDIM) - 1; i >= 0; --i) {
    strides[i] = stride;
    const int64_t size = std::max<int64_t>(output.shape[i], 1);
    if (__builtin_mul_overflow(stride, size, &stride)) stride = INT64_MAX;
  }
}

std::string plan_problem(const opdock_plan& plan) {
  for (uint32_t i = 0; i < plan.num_outputs; ++i) {
    const opdock_output& output = plan.outputs[i];
    int64_t strides[OPDOCK_MAX_NDIM];
    opdock_tensor x{};  // a tensor of this layout, for check_tensor()
    x.device = {OPDOCK_CPU, 0};
    x.dtype = output.dtype;
    x.ndim = output.ndim;
    x.shape = const_cast<int64_t*>(output.shape);
    x.strides = strides;
    set_strides(output, strides);
    const TensorProblem problem = check_tensor(&x, OPDOCK_VALUE_NO_DATA);
    if (problem != TensorProblem::kNone) {
      return "output " + std::to_string(i) + ": " + describe(problem, &x);
    }
    if (output.alignment > kMaxAlignment ||
        (output.alignment != 0 && !std::has_single_bit(output.alignment))) {
      return "output " + std::to_string(i) + ": found an alignment of " +
             std::to_string(output.alignment) + ", wanted a power of two of at most 2^30";
    }
  }
  if (plan.workspace_alignment != 0 && !std::has_single_bit(plan.workspace_alignment)) {
    return "found a workspace alignment of " + std::to_string(plan.workspace_alignment) +
           ", wanted a power of two";
  }
  if (plan.workspace_bytes > (UINT64_MAX >> 1)) {
    return "found " + std::to_string(plan.workspace_bytes) +
           " workspace bytes, wanted fewer than 2^63";
  }
  return {};
}

opdock_status check_outputs(const opdock_function& function, const Target& target,
                            const opdock_plan& plan, opdock_tensor* const* outputs,
                            uint32_t num_outputs, bool may_lack, const ErrorBuffer& error) {
  if (num_outputs != plan.num_outputs || (outputs == nullptr && num_outputs != 0)) {
    error.write(function.schema().name, ": found " + quantity(num_outputs, "output") + ", wanted " +
                                            std::to_string(plan.num_outputs) +
                                            ", one for each fresh tensor that was planned");
    return OPDOCK_INVALID_ARGUMENT;
  }
  for (uint32_t i = 0; i < num_outputs; ++i) {
    const opdock_tensor* x = outputs[i];
    if (x == nullptr && may_lack) continue;
    TensorProblem problem = check_tensor(x, 0);
    if (problem != TensorProblem::kNone) return refuse(function, i, error, describe(problem, x));
    const opdock_output& planned = plan.outputs[i];
    if (!is_planned(*x, planned, target.device)) {
      return refuse(function, i, error,
                    "found " + kind_of(x->dtype, x->ndim, x->shape, x->device) + ", wanted " +
                        kind_of(planned.dtype, planned.ndim, planned.shape, target.device) +
                        ", as planned; pass such a tensor");
    }
    const uint64_t past =
        reinterpret_cast<uintptr_t>(x->data) & (std::max<uint64_t>(planned.alignment, 1) - 1);
    if (past != 0 && x->data != nullptr) {
      return refuse(
          function, i, error,
          "found memory " + std::to_string(past) + " bytes past a multiple of " +
              std::to_string(planned.alignment) +
              ", wanted it aligned to that, as planned; leave it to the host to allocate");
    }
    const std::string overlap = self_overlap(x->ndim, x->shape, x->strides);
    if (!overlap.empty()) return refuse(function, i, error, overlap + "; pass a tensor of its own");
  }
  return OPDOCK_OK;
}

}  // namespace opdock
