// Implements cross_entropy, with and without its gradient: checks arguments and hands the rows to
// the kernels.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <opdock/op.hpp>

#include "cross_entropy_cpu.h"
#include "device/cross_entropy_params.cuh"

namespace cross_entropy {
namespace {

using namespace opdock::usual;

constexpr auto kKernels = OPDOCK_ROW_FAMILY("cross_entropy", 1, opdock::kLightRows);
// Kernels for the loss without the gradient.
constexpr auto kLossKernels = kKernels.with(opdock::kReadRows);

struct Options {
  int64_t ignore_index;
  double label_smoothing;
};

// Checks the dtype of a tensor with one value per row.
void check_row_value(Tensor tensor, const char* name, Tensor logits) {
  if (logits.dtype() == dtype_of<double>())
    check(tensor, name).dtype(dtype_of<float>(), dtype_of<double>());
  else
    check(tensor, name).dtype(dtype_of<float>());
  check(tensor, name).aligned();
}

void check_target(Tensor target, Tensor logits) {
  check(target, "target").dtype(dtype_of<int64_t>(), dtype_of<int32_t>()).aligned();
  bool fits = target.ndim() == logits.ndim() - 1;
  for (int32_t i = 0; fits && i < target.ndim(); ++i) fits = target.size(i) == logits.size(i);
  if (!fits)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'target': found shape ", target.shape_text(),
                       ", wanted that of 'logits', ", logits.shape_text(),
                       ", without the last dimension; reshape one of the two"));
}

void check_scale(Tensor scale, const char* name, Tensor target, Tensor logits) {
  check_row_value(scale, name, logits);
  check(scale, name).broadcasts_to(target, "target");
}

void check_arguments(const Plan& plan, Tensor logits, Tensor target, const Options& options) {
  opdock::check_row_dtype(plan, logits, "logits");
  if (logits.size(-1) == 0)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'logits': found shape ", logits.shape_text(),
                       ", wanted at least one class in the last dimension; give it one"));
  check_target(target, logits);
  const double smoothing = options.label_smoothing;
  opdock::check_number(smoothing, "label_smoothing", smoothing >= 0 && smoothing <= 1,
                       "a share, from 0 to 1; 0.1 is usual");
}

void plan_loss(Plan* plan, Tensor logits, const std::optional<Dtype>& dtype) {
  const Dtype of = dtype ? *dtype : dtype_of<float>();
  const bool may_be_double = logits.dtype() == dtype_of<double>();
  if (of != dtype_of<float>() && !(may_be_double && of == dtype_of<double>()))
    throw Error(OPDOCK_UNSUPPORTED,
                concat("argument 'dtype': found ", of.name(), ", wanted float32",
                       may_be_double ? " or float64" : "", "; convert the result"));
  plan->output(opdock::Layout(of, logits.shape(), logits.ndim() - 1));
}

// A tensor with one number per row, as rows of length 1.
class RowValues {
 public:
  explicit RowValues(const OptionalTensor& values) : present_(values.has_value()) {
    if (!present_) return;
    tensor_ = *values->get();
    std::copy_n(values->shape(), values->ndim(), shape_);
    std::copy_n(values->strides(), values->ndim(), strides_);
    shape_[tensor_.ndim] = strides_[tensor_.ndim] = 1;
    ++tensor_.ndim;
    tensor_.shape = shape_;
    tensor_.strides = strides_;
  }
  RowValues(const RowValues&) = delete;
  OptionalTensor rows() const { return present_ ? OptionalTensor(Tensor(&tensor_)) : std::nullopt; }

 private:
  bool present_;
  opdock_tensor tensor_ = {};
  int64_t shape_[OPDOCK_MAX_NDIM + 1], strides_[OPDOCK_MAX_NDIM + 1];
};

// Checks all targets before anything is written, because the gradient may overwrite the logits.
void check_targets(const Params& p) {
  for (long long row = 0; row < p.rows.count; ++row) {
    long long offset[5];
    p.rows.locate(row, offset);
    const long long target = p.target_at(offset[1]);
    if ((target >= 0 && target < p.length) || target == p.ignore_index) continue;
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'target': found ", target, " in row ", row, ", wanted 0 to ",
                       p.length - 1, ", of the ", p.length, " classes of 'logits', or ",
                       p.ignore_index, ", the ignore_index; correct it or ignore the row"));
  }
}

void run(Call& call, Tensor logits, Tensor target, const OptionalTensor& scale,
         const Options& options, const OptionalTensor& loss, const OptionalTensor& gradient) {
  if (loss) check(*loss, "output 0").aligned();
  if (logits.numel() == 0) return;
  Params params = {};
  params.logits = logits.raw();
  params.target = target.raw();
  params.scale = opdock::raw_or_null(scale);
  params.loss = opdock::raw_or_null(loss);
  params.gradient = opdock::raw_or_null(gradient);
  params.length = logits.size(-1);
  params.ignore_index = options.ignore_index;
  params.smoothing = static_cast<float>(options.label_smoothing);
  params.share = 1.0f / static_cast<float>(params.length);
  params.is_wide = target.dtype() == dtype_of<int64_t>();
  const RowValues targets(target), scales(scale), losses(loss);
  params.rows =
      opdock::make_rows<5>({logits, targets.rows(), scales.rows(), losses.rows(), gradient});
  if (!call.is_cpu()) {
    const opdock::RowFit fit =
        opdock::fit_of(params.rows, params.length, logits.dtype().bytes(),
                       {params.logits, nullptr, nullptr, nullptr, params.gradient}, {nullptr});
    if (gradient)
      opdock::launch_rows(call, kKernels, logits.dtype(), fit, &params);
    else
      opdock::launch_rows(call, kLossKernels, logits.dtype(), fit, &params);
    return;
  }
  check_targets(params);
  const auto is_double = [](const OptionalTensor& tensor) {
    return tensor && tensor->dtype() == dtype_of<double>();
  };
  const Job job = {logits.dtype(), options.label_smoothing, is_double(loss), is_double(scale),
                   params};
  static const auto kernel = OPDOCK_SIMD_CHOOSE(run);
  opdock::for_rows(call, params.rows.count, params.length,
                   [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
}

void plan_cross_entropy(Plan& plan, Tensor logits, Tensor target, int64_t ignore_index,
                        double label_smoothing, std::optional<Dtype> dtype) {
  check_arguments(plan, logits, target, {ignore_index, label_smoothing});
  plan_loss(&plan, logits, dtype);
}

void run_cross_entropy(Call& call, Results results, Tensor logits, Tensor target,
                       int64_t ignore_index, double label_smoothing, std::optional<Dtype>) {
  run(call, logits, target, std::nullopt, {ignore_index, label_smoothing}, results[0],
      std::nullopt);
}

void plan_with_gradient(Plan& plan, Tensor logits, Tensor target, OptionalTensor scale,
                        int64_t ignore_index, double label_smoothing, std::optional<Dtype> dtype) {
  check_arguments(plan, logits, target, {ignore_index, label_smoothing});
  if (scale) check_scale(*scale, "scale", target, logits);
  plan_loss(&plan, logits, dtype);
  plan.output(logits.like());
}

void run_with_gradient(Call& call, Results results, Tensor logits, Tensor target,
                       OptionalTensor scale, int64_t ignore_index, double label_smoothing,
                       std::optional<Dtype>) {
  run(call, logits, target, scale, {ignore_index, label_smoothing}, results[0], results[1]);
}

void plan_backward(Plan& plan, Tensor logits, Tensor target, Tensor grad, int64_t ignore_index,
                   double label_smoothing) {
  check_arguments(plan, logits, target, {ignore_index, label_smoothing});
  check_scale(grad, "grad", target, logits);
  plan.output(logits.like());
}

void run_backward(Call& call, Results results, Tensor logits, Tensor target, Tensor grad,
                  int64_t ignore_index, double label_smoothing) {
  run(call, logits, target, grad, {ignore_index, label_smoothing}, std::nullopt, results[0]);
}

}  // namespace
}  // namespace cross_entropy

OPDOCK_OP(cross_entropy, cross_entropy::plan_cross_entropy, nullptr,
          cross_entropy::run_cross_entropy)
OPDOCK_OP(cross_entropy_with_gradient, cross_entropy::plan_with_gradient, nullptr,
          cross_entropy::run_with_gradient)
OPDOCK_OP(cross_entropy_backward, cross_entropy::plan_backward, nullptr,
          cross_entropy::run_backward)
