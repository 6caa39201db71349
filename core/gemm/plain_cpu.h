// Products on the CPU by a loop of our own: for what no BLAS computes, or where there is none.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gemm/device/gemm_shared.cuh"

namespace opdock::gemm {

// How many tiles D has. They are independent of each other; each element's sum is made in one
// order, whoever computes its tile.
uint64_t count_tiles(const Product& p);
void multiply_tiles(const Product& p, uint64_t begin, uint64_t end);

// Rows of all matrices of the batch, counted through: D's float32 sums become its results. alpha is
// in them already, and C unless it is a residual.
void finish_rows(const Product& p, uint64_t begin, uint64_t end);

// C into D, of the same dtype float32, rows as above.
void copy_rows(const Product& p, uint64_t begin, uint64_t end);

}  // namespace opdock::gemm
