// Implements fp_quantize, fp_dequantize and fp_selective_dequantize: checks their arguments and
// hands the groups to the kernels.
// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"
#include "groups.h"

namespace fp_quantizer {
namespace {

using Generator = std::optional<const opdock_generator*>;

int64_t row_bytes(int64_t group, int bits) {
  return group * bits / 8 + kScaleBytes;
}

void plan_quantize(Plan& plan, Tensor x, int64_t exponent_bits, int64_t mantissa_bits,
                   bool is_stochastic, Generator) {
  const Format format(exponent_bits, mantissa_bits);
  check(x, "x").dtype(dtype_of<opdock::half>(), dtype_of<opdock::bfloat16>()).ndim_at_least(1);
  format.check_group("x", x.size(-1));
  plan.output(
      x.like().with_dtype(dtype_of<uint8_t>()).with_size(-1, row_bytes(x.size(-1), format.bits())));
  if (is_stochastic) plan.random_numbers(static_cast<uint64_t>(x.numel()));
}

void run_quantize(Call& call, Results results, Tensor x, int64_t exponent_bits,
                  int64_t mantissa_bits, bool is_stochastic, Generator) {
  const Tensor q = results[0];
  check(q, "output 0").contiguous();
  if (x.is_empty()) return;
  const Format format(exponent_bits, mantissa_bits);
  QuantizeParams params = {};
  params.x = x.raw();
  params.q = static_cast<unsigned char*>(q.raw());
  params.group = x.size(-1);
  params.groups = x.numel() / params.group;
  params.row = q.size(-1);
  params.codes = format.codes();
  params.is_stochastic = is_stochastic;
  if (is_stochastic) params.random = opdock::random_source(*call.generator());
  if (!call.is_cpu()) return launch_quantize(call, x.dtype(), format.bits(), params);
  call.parallel_for(params.groups, group_grain(params.group), [&](int64_t begin, int64_t end) {
    quantize_on_cpu(x.dtype(), format.bits(), params, begin, end);
  });
}

void plan_dequantize(Plan& plan, Tensor q, int64_t exponent_bits, int64_t mantissa_bits,
                     std::optional<Dtype> dtype) {
  const Format format(exponent_bits, mantissa_bits);
  const QuantizedRows rows = check_rows_of_codes(q, format, 1);
  plan.output(q.like().with_dtype(check_result_dtype(dtype)).with_size(-1, rows.group));
}

void plan_selective(Plan& plan, Tensor q, Tensor index, int64_t exponent_bits,
                    int64_t mantissa_bits, std::optional<Dtype> dtype) {
  const Format format(exponent_bits, mantissa_bits);
  const QuantizedRows rows = check_rows_of_codes(q, format, 2);
  check(index, "index").dtype(dtype_of<int32_t>()).same_device_as(q, "q").ndim(1);
  plan.output(q.like()
                  .with_dtype(check_result_dtype(dtype))
                  .with_size(0, index.size(0))
                  .with_size(-1, rows.group));
}

void dequantize(Call& call, Tensor out, Tensor q, OptionalTensor index, const Format& format) {
  check(out, "output 0").contiguous();
  if (out.is_empty()) return;
  const QuantizedRows rows = check_rows_of_codes(q, format, 1);
  DequantizeParams params = {};
  params.codes_at = static_cast<const unsigned char*>(q.raw());
  params.scales_at = params.codes_at + (rows.bytes - kScaleBytes);
  params.code_stride = params.scale_stride = rows.bytes;
  params.out = out.raw();
  params.group = rows.group;
  params.groups = out.numel() / rows.group;
  params.codes = format.codes();
  if (index) {
    params.index = index->data<const int32_t>();
    params.indexed = q.size(0);
    params.of_index = params.groups / index->size(0);
  }
  if (!call.is_cpu()) return launch_dequantize(call, out.dtype(), format.bits(), params);
  call.parallel_for(params.groups, group_grain(params.group), [&](int64_t begin, int64_t end) {
    dequantize_on_cpu(out.dtype(), false, format.bits(), params, begin, end);
  });
}

void run_dequantize(Call& call, Results results, Tensor q, int64_t exponent_bits,
                    int64_t mantissa_bits, std::optional<Dtype>) {
  dequantize(call, results[0], q, std::nullopt, Format(exponent_bits, mantissa_bits));
}

void run_selective(Call& call, Results results, Tensor q, Tensor index, int64_t exponent_bits,
                   int64_t mantissa_bits, std::optional<Dtype>) {
  dequantize(call, results[0], q, index, Format(exponent_bits, mantissa_bits));
}

}  // namespace
}  // namespace fp_quantizer

OPDOCK_OP(fp_quantize, fp_quantizer::plan_quantize, nullptr, fp_quantizer::run_quantize)
OPDOCK_OP(fp_dequantize, fp_quantizer::plan_dequantize, nullptr, fp_quantizer::run_dequantize)
OPDOCK_OP(fp_selective_dequantize, fp_quantizer::plan_selective, nullptr,
          fp_quantizer::run_selective)
