// Checks the arguments of dequantize; plugin.toml has its formula.
// SPDX-License-Identifier: Apache-2.0
#include <opdock/plugin.hpp>

namespace dequantize {
namespace {

using opdock::check;
using opdock::Dtype;
using opdock::Error;
using opdock::Plan;
using opdock::Tensor;
using opdock::detail::concat;

void plan(Plan& plan, Tensor q, Tensor scale, std::optional<Dtype> dtype) {
  check(q, "q").dtype(opdock::dtype_of<int8_t>()).ndim_at_least(1).contiguous();
  check(scale, "scale")
      .dtype(opdock::dtype_of<float>())
      .same_device_as(q, "q")
      .ndim(1)
      .contiguous()
      .aligned(sizeof(float));
  const Dtype wanted = dtype.value_or(opdock::dtype_of<float>());
  if (wanted != opdock::dtype_of<float>() && wanted != opdock::dtype_of<opdock::half>() &&
      wanted != opdock::dtype_of<opdock::bfloat16>())
    throw Error(OPDOCK_UNSUPPORTED, concat("argument 'dtype': found ", wanted.name(),
                                           ", wanted float32, float16 or bfloat16"));
  const int64_t groups = scale.numel();
  if (q.numel() > 0 && (groups == 0 || q.numel() % groups != 0))
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'scale': found ", groups, " scales, wanted one for each group of ",
                       "as many of the ", q.numel(), " elements of 'q'; pass a divisor of these"));
  plan.output(q.like().with_dtype(wanted));
}

}  // namespace
}  // namespace dequantize

OPDOCK_PLAN(dequantize, dequantize::plan)
