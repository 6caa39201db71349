// Quantises and decodes groups, on the GPU and on the CPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <opdock/op.hpp>

#include "device/groups_params.cuh"

namespace fp_quantizer {

// The members of the parameters that say how a GPU's threads divide the work are not read on the
// CPU, and set_launch() fills them in. dtype: of the 16-bit numbers. bits: of a code.
void launch_quantize(const opdock::Call& call, opdock::Dtype dtype, int bits,
                     QuantizeParams params);
void launch_dequantize(const opdock::Call& call, opdock::Dtype dtype, int bits,
                       DequantizeParams params);

// Quantises the groups begin … end - 1.
void quantize_on_cpu(opdock::Dtype dtype, int bits, const QuantizeParams& params, int64_t begin,
                     int64_t end);
// Decodes the groups begin … end - 1 of the output. is_float: the output is of float32, of numbers
// that are rounded to `dtype` all the same. Throws an Error for an index that is outside.
void dequantize_on_cpu(opdock::Dtype dtype, bool is_float, int bits, const DequantizeParams& params,
                       int64_t begin, int64_t end);

// Returns the number of groups, of so many elements, that are worth waking a CPU thread for.
inline int64_t group_grain(int64_t group) {
  constexpr int64_t kGrain = 4096;  // elements: about ten microseconds of work
  return group >= kGrain ? 1 : kGrain / group;
}

}  // namespace fp_quantizer
