// The formulas of formula_bench.cc as a compiler makes them: one loop, in which all values stay in
// registers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace compiled {

void polynomial(const float* x, float* y, int64_t n);
void silu(const float* x, const float* gate, const float* residual, float* y, int64_t n);
void gelu(const float* x, const float* scale, const float* residual, float* y, int64_t n);
void exponentials(const float* x, float* y, int64_t n);
void arithmetic(const float* x, const float* z, float* y, int64_t n);
void softmax(const float* x, float* y, int64_t rows, int64_t columns);

}  // namespace compiled
