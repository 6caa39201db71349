// A product as the kernels take it, made of what a plugin asks for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "gemm/device/gemm_shared.cuh"
#include "opdock/gemm.h"

namespace opdock::gemm {

// Checks everything but addresses, and describes it for the kernels. The struct is whole: read_gemm
// has seen to that.
Status check_product(const opdock_gemm& what, Product* out);

// The struct as this host declares it; NULL and *problem if it is too short.
const opdock_gemm* read_gemm(const opdock_gemm* what, opdock_gemm* room, Status* problem);

// Whether an address that run needs is NULL: the name of the member, or NULL if all are there.
const char* missing_address(const opdock_gemm& what);

// Results there are any of.
inline bool is_empty(const Product& p) {
  return p.m == 0 || p.n == 0 || p.batch == 0;
}
// beta * C counts.
inline bool has_c(const Product& p) {
  return p.finish.beta != 0.0f;
}
// Sums are integers.
inline bool is_integer(const Product& p) {
  return p.a.element == kInt8;
}
// D is what the sums are: alpha and beta are the library's.
inline bool is_plain(const Product& p) {
  return p.finish.activation == kNone && p.finish.bias_element == kNoElement;
}
// From one row to the next of what is stored.
inline int64_t stride_of(const Operand& x) {
  return x.transposed ? x.column_stride : x.row_stride;
}
// C is D itself, element by element.
inline bool is_in_place(const Product& p) {
  return has_c(p) && p.finish.c.data == p.d.data;
}

}  // namespace opdock::gemm
