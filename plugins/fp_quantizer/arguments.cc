// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include "device/groups_params.cuh"

namespace fp_quantizer {
namespace {

struct Listed {
  int64_t exponent_bits, mantissa_bits;
};
constexpr Listed kFormats[] = {{4, 3}, {5, 2}, {3, 2}, {4, 7}, {2, 1}};

}  // namespace

Format::Format(int64_t exponent_bits, int64_t mantissa_bits) {
  for (const Listed& one : kFormats) {
    if (one.exponent_bits != exponent_bits || one.mantissa_bits != mantissa_bits) continue;
    exponent_bits_ = static_cast<int>(exponent_bits);
    mantissa_bits_ = static_cast<int>(mantissa_bits);
    return;
  }
  throw Error(OPDOCK_UNSUPPORTED,
              concat("argument 'exponent_bits': found ", exponent_bits, " with ", mantissa_bits,
                     " 'mantissa_bits', wanted 4 with 3, 5 with 2, 3 with 2, 4 with 7 or 2 with 1; "
                     "choose one of these formats"));
}

Codes Format::codes() const {
  const int bias = (1 << (exponent_bits_ - 1)) - 1;
  Codes codes = {};
  codes.shift = 23 - mantissa_bits_;
  codes.least = (127 - bias) << mantissa_bits_;
  codes.most = (1 << (exponent_bits_ + mantissa_bits_)) - 1;
  codes.range =
      opdock::detail::bit_cast<float>(decode(codes, static_cast<unsigned int>(codes.most), bits()));
  return codes;
}

void Format::check_group(const char* argument, int64_t group) const {
  if (group > 0 && group * bits() % 8 == 0) return;
  const int64_t multiple = bits() == 6 ? 4 : bits() == 8 ? 1 : 2;
  throw Error(OPDOCK_INVALID_ARGUMENT,
              concat("argument '", argument, "': found groups (its rows) of ", group,
                     " elements, wanted a multiple of ", multiple, ", so that the ", bits(),
                     "-bit codes of a group are whole bytes; reshape it"));
}

Dtype check_result_dtype(std::optional<Dtype> dtype) {
  const Dtype wanted = dtype.value_or(dtype_of<opdock::bfloat16>());
  if (wanted == dtype_of<opdock::half>() || wanted == dtype_of<opdock::bfloat16>()) return wanted;
  throw Error(OPDOCK_UNSUPPORTED, concat("argument 'dtype': found ", wanted.name(),
                                         ", wanted float16 or bfloat16; convert the result"));
}

QuantizedRows check_rows_of_codes(Tensor q, const Format& format, int32_t least_ndim) {
  check(q, "q").dtype(dtype_of<uint8_t>()).ndim_at_least(least_ndim);
  const int64_t bytes = q.size(-1), bits = (bytes - kScaleBytes) * 8;
  if (bits > 0 && bits % format.bits() == 0) return {bytes, bits / format.bits()};
  throw Error(OPDOCK_INVALID_ARGUMENT,
              concat("argument 'q': found rows of ", bytes, " bytes, wanted some codes of ",
                     format.bits(), " bits, which end with a byte, and ", int64_t{kScaleBytes},
                     " bytes of a scale; pass fp_quantize's result, and its 'exponent_bits' and "
                     "'mantissa_bits'"));
}

}  // namespace fp_quantizer
