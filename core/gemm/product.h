// Describes a product for the kernels, and checks and converts what a plugin asks for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "gemm/device/gemm_shared.cuh"
#include "opdock/gemm.h"

namespace opdock::gemm {

// Checks everything except addresses, and describes the product for the kernels. The struct has all
// members, because read_gemm() has checked its size.
Status check_product(const opdock_gemm& what, Product* out);

// Returns the struct in the layout of this host; NULL and *problem if it is too short.
const opdock_gemm* read_gemm(const opdock_gemm* what, opdock_gemm* room, Status* problem);

// Returns the name of the first member that run needs and that is NULL, or NULL if none is missing.
const char* missing_address(const opdock_gemm& what);

// Returns whether D has no elements.
inline bool is_empty(const Product& p) {
  return p.m == 0 || p.n == 0 || p.batch == 0;
}
// Returns whether beta * C is added.
inline bool has_c(const Product& p) {
  return p.finish.beta != 0.0f;
}
// Returns whether the sums are integers.
inline bool is_integer(const Product& p) {
  return p.a.element == kInt8;
}
// Returns whether a sum needs neither an activation nor a bias. A library applies alpha and beta.
inline bool is_plain(const Product& p) {
  return p.finish.activation == kNone && p.finish.bias_element == kNoElement;
}
// Returns the distance between successive rows of the matrix as it is stored.
inline int64_t stride_of(const Operand& x) {
  return x.transposed ? x.column_stride : x.row_stride;
}
// Returns whether C is D itself, element by element; C may not overlap D otherwise.
inline bool is_in_place(const Product& p) {
  return has_c(p) && p.finish.c.data == p.d.data;
}

}  // namespace opdock::gemm
