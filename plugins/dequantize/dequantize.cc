// Implements dequantize: checks its arguments and hands the elements to the kernels.
// SPDX-License-Identifier: Apache-2.0
#include "dequantize_cpu.h"
#include "dequantize_gpu.h"
#include "opdock/pieces.hpp"

namespace dequantize {
namespace {

using opdock::Call;
using opdock::check;
using opdock::Dtype;
using opdock::Error;
using opdock::Plan;
using opdock::Results;
using opdock::Tensor;
using opdock::detail::concat;

constexpr auto kDequantize = OPDOCK_KERNEL_FAMILY("dequantize::dequantize", opdock::RowTypes);

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

void run(Call& call, Results results, Tensor q, Tensor scale, std::optional<Dtype>) {
  const Tensor out = results[0];
  check(out, "output 0").contiguous().aligned(static_cast<uint64_t>(out.dtype().bytes()));
  if (q.numel() == 0) return;
  const Params params = make_params(q, scale, out);
  if (call.is_cpu()) {
    const Job job = {out.dtype(), params};
    static const auto kernel = OPDOCK_SIMD_CHOOSE(run);
    return call.parallel_for(params.numel, opdock::kElementGrain,
                             [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
  }
  launch(call, kDequantize(out.dtype()), out.dtype(), params);
}

}  // namespace
}  // namespace dequantize

OPDOCK_OP(dequantize, dequantize::plan, nullptr, dequantize::run)
