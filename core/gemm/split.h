// How a product is divided between a library and our own kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gemm/product.h"

namespace opdock::gemm {

struct Split {
  bool by_library = false;    // else all by plain kernels
  bool in_workspace = false;  // the library's sums lie there, not in D
  bool finishes = false;      // our own kernel has something left to do
  Product library;            // what the library does; d.data NULL if in_workspace
  Product rest;               // what finish_sums() does; a and b for their scales alone
  Operand sums;               // where it finds the sums; data NULL if in_workspace
};

// What a library does in one go.
struct LibraryCan {
  bool epilogues;  // bias in D's dtype, GELU by tanh of 16 bits
  bool eights;     // eight-bit floats with a scale each, D's too
};

void split_product(const Product& p, const LibraryCan& can, Split* out);

// Bytes of sums in the workspace, a multiple of 256; 0 unless in_workspace.
uint64_t bytes_of_sums(const Split& split);

}  // namespace opdock::gemm
