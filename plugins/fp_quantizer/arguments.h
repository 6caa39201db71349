// The formats of codes, and what the ops check of their arguments.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <opdock/op.hpp>

#include "device/codes.cuh"

namespace fp_quantizer {

using namespace opdock::usual;

// A format, checked: one of those that DeepSpeed has.
class Format {
 public:
  // Throws an Error that names the argument for a format that there is not.
  Format(int64_t exponent_bits, int64_t mantissa_bits);

  int bits() const { return 1 + exponent_bits_ + mantissa_bits_; }
  Codes codes() const;
  // Throws unless the codes of a group are whole bytes, and there is at least one. argument: whose
  // rows the groups are.
  void check_group(const char* argument, int64_t group) const;

 private:
  int exponent_bits_, mantissa_bits_;
};

// Throws unless the dtype of a result, or bfloat16 for none, is one of 16 bits; returns it.
Dtype check_result_dtype(std::optional<Dtype> dtype);

// The groups of a tensor with codes and scales.
struct QuantizedRows {
  int64_t bytes;  // of a row
  int64_t group;  // elements of a row
};
// Checks q, uint8, of at least so many dimensions.
QuantizedRows check_rows_of_codes(Tensor q, const Format& format, int32_t least_ndim);

}  // namespace fp_quantizer
