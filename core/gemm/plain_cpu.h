// Matrix products on the CPU by Opdock's own loop, for products that no BLAS computes, or if there
// is no BLAS.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gemm/device/gemm_shared.cuh"

namespace opdock::gemm {

// Returns how many tiles D has. Tiles are independent of each other. The order of the terms in each
// element's sum is fixed, whichever thread computes its tile.
uint64_t count_tiles(const Product& p);
void multiply_tiles(const Product& p, uint64_t begin, uint64_t end);

// Turns D's float32 sums into its results. Rows are numbered through all matrices of the batch. The
// sums already include alpha, and also C unless it is a residual.
void finish_rows(const Product& p, uint64_t begin, uint64_t end);

// Copies rows of C to D, both of dtype float32. Rows are numbered as in finish_rows().
void copy_rows(const Product& p, uint64_t begin, uint64_t end);

}  // namespace opdock::gemm
