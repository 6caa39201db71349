// Implements dequantize_groups and dequantize_unsigned: integers of 4 or 8 bits become numbers.
// SPDX-License-Identifier: Apache-2.0
#include "quantizer.h"

namespace quantizer {
namespace {

constexpr auto kDequantize =
    OPDOCK_KERNEL_FAMILY("quantizer::dequantize", Types, KernelNumbers<4, 8>);
constexpr auto kUnsigned =
    OPDOCK_KERNEL_FAMILY("quantizer::dequantize_unsigned", KernelNumbers<4, 8>);

// Launches a kernel whose threads compute vectors of 16 bytes of the result.
template <class Params>
void launch_vectors(const Call& call, uint32_t kernel, int64_t numel, int64_t element_bytes,
                    const Params& params) {
  const int64_t of_block = kVectorThreads * kVectors * (16 / element_bytes);
  const int64_t blocks = (numel + of_block - 1) / of_block;
  if (blocks > (int64_t{1} << 24) - 1)
    throw Error(OPDOCK_UNSUPPORTED, concat("argument 'q': found ", numel,
                                           " elements, wanted at most 2^36; pass fewer at a time"));
  opdock::Launch how = {blocks, kVectorThreads};
  how.flags = opdock::detail::pdl_launch_flags(call, blocks, kVectorThreads);
  call.launch(kernel, how, params);
}

void plan_dequantize(Plan& plan, Tensor q, Tensor params, int64_t bits, bool scaled_offset,
                     std::optional<Dtype> dtype) {
  check(q, "q").dtype(dtype_of<int8_t>()).ndim_at_least(1);
  check_params(params, q);
  check_bits(bits);
  const int64_t numel = q.numel() * (8 / bits);
  if (numel > 0) check_groups(params.size(0), numel, bits, "params");
  if (scaled_offset && params.size(1) == 1)
    fail("scaled_offset", "True", "False for symmetric groups, which have no offset");
  const Dtype wanted = dtype.value_or(dtype_of<float>());
  if (Types::find(wanted) == Types::kCount)
    throw Error(OPDOCK_UNSUPPORTED, concat("argument 'dtype': found ", wanted.name(),
                                           ", wanted float32, float16 or bfloat16"));
  plan.output(q.like().with_dtype(wanted).with_size(-1, q.size(-1) * 8 / bits));
}

void run_dequantize(Call& call, Results results, Tensor q, Tensor params, int64_t bits,
                    bool scaled_offset, std::optional<Dtype>) {
  const Tensor out = results[0];
  if (out.numel() == 0) return;
  DequantizeParams all = {};
  all.from = make_source(q, params, bits, 1);
  all.out = out.raw();
  all.scales_offset = scaled_offset;
  all.aligned = address_of(all.out) % 16 == 0;
  const Source& from = all.from;
  if (!call.is_cpu()) {
    all.from.even = from.length.divisor % (16 / out.dtype().bytes()) == 0;
    return launch_vectors(call, kDequantize(out.dtype(), bits), out.numel(), out.dtype().bytes(),
                          all);
  }
  const int64_t length = from.length.divisor;
  opdock::dispatch<float, opdock::half, opdock::bfloat16>(out, "out", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_groups(call, from.groups, length, [&](int64_t group) {
      const float step = from.params[from.is_symmetric ? group : 2 * group];
      const float offset = from.is_symmetric ? 0.0f : from.params[2 * group + 1];
      T* const to = static_cast<T*>(all.out) + group * length;
      for (int64_t i = 0; i < length; ++i) {
        const float number = static_cast<float>(signed_number(from.q, group * length + i, bits));
        to[i] = scaled_offset ? (number - offset) * step : std::fma(number, step, offset);
      }
    });
  });
}

void plan_unsigned(Plan& plan, Tensor q, Tensor scale, Tensor least, int64_t bits) {
  check(q, "q").dtype(dtype_of<uint8_t>(), dtype_of<int8_t>()).ndim_at_least(1);
  check(scale, "scale").dtype(dtype_of<opdock::half>()).same_device_as(q, "q");
  check(least, "least").like(scale, "scale");
  check_bits(bits);
  const int64_t numel = q.numel() * (8 / bits);
  if (numel > 0) check_groups(scale.numel(), numel, bits, "scale");
  plan.output(q.like().with_dtype(dtype_of<opdock::half>()).with_size(-1, q.size(-1) * 8 / bits));
}

void run_unsigned(Call& call, Results results, Tensor q, Tensor scale, Tensor least, int64_t bits) {
  const Tensor out = results[0];
  if (out.numel() == 0) return;
  const int64_t length = out.numel() / scale.numel();
  if (!call.is_cpu()) {
    UnsignedParams all = {};
    all.q = static_cast<const unsigned char*>(q.raw());
    all.scale = static_cast<const unsigned short*>(scale.raw());
    all.least = static_cast<const unsigned short*>(least.raw());
    all.out = static_cast<unsigned short*>(out.raw());
    all.numel = out.numel();
    all.length = make_divisor(length);
    all.even = length % 8 == 0;
    all.aligned =
        address_of(all.q) % static_cast<uintptr_t>(bits) == 0 && address_of(all.out) % 16 == 0;
    return launch_vectors(call, kUnsigned(bits), out.numel(), 2, all);
  }
  const opdock::half* const scales = scale.data<const opdock::half>();
  const opdock::half* const leasts = least.data<const opdock::half>();
  const unsigned char* const bytes = static_cast<const unsigned char*>(q.raw());
  opdock::half* const to = out.data<opdock::half>();
  for_groups(call, scale.numel(), length, [&](int64_t group) {
    for (int64_t i = group * length; i < (group + 1) * length; ++i) {
      const int byte = bytes[bits == 8 ? i : i / 2];
      const int number = bits == 8 ? byte : i % 2 == 0 ? byte >> 4 : byte & 15;
      const opdock::half ratio = static_cast<float>(number) / scales[group];
      to[i] = ratio + leasts[group];
    }
  });
}

}  // namespace
}  // namespace quantizer

OPDOCK_OP(dequantize_groups, quantizer::plan_dequantize, nullptr, quantizer::run_dequantize)
OPDOCK_OP(dequantize_unsigned, quantizer::plan_unsigned, nullptr, quantizer::run_unsigned)
