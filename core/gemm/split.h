// Divides a product between a library and Opdock's own kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gemm/product.h"

namespace opdock::gemm {

struct Split {
  bool by_library = false;    // false: plain kernels compute everything
  bool in_workspace = false;  // the library stores its sums in the workspace, not in D
  bool finishes = false;      // Opdock's own kernel has to finish the sums
  Product library;            // the library's part; d.data is NULL if in_workspace
  Product rest;               // the part of finish_sums(); a and b only for their scales
  Operand sums;               // where finish_sums() finds the sums; data is NULL if in_workspace
};

// The abilities of a library in a single call.
struct LibraryFeatures {
  bool epilogues;  // a bias in D's dtype, and GELU by tanh for 16 bits
  bool fp8;        // eight-bit floats with one scale each, also for D
};

void split_product(const Product& p, const LibraryFeatures& features, Split* out);

// Returns the bytes of sums in the workspace, a multiple of 256; 0 unless in_workspace.
uint64_t bytes_of_sums(const Split& split);

}  // namespace opdock::gemm
