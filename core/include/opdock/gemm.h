/*
 * opdock/gemm.h: products of matrices for plugins, the extension "opdock.gemm/1", in C11.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * opdock_gemm_table, at the end, has an example. The work is done by a library that the host finds
 * at run time (cuBLASLt, rocBLAS, a BLAS on the CPU) or, if no library can do it, by the host's own
 * kernels: docs/concepts/gemm.md. opdock/gemm.hpp does the same with tensors in C++17.
 *
 * Errors, threads, tags and ownership are those of plugin.h.
 */
#ifndef OPDOCK_GEMM_H_
#define OPDOCK_GEMM_H_

#include "opdock/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OPDOCK_GEMM_1 "opdock.gemm/1"

/* Flags of a matrix. */
#define OPDOCK_GEMM_TRANSPOSED 1u /* a, b: op() transposes the stored matrix */
#define OPDOCK_GEMM_SCALES 2u     /* scale has one number per row of op(A), or column of op(B) */

/* Matrices of a batch, row-major: element [row, column] of matrix i, as stored, lies at data + (i *
 * batch_stride + row * stride + column) elements. The memory is on the device of the call. */
typedef struct opdock_gemm_matrix { /* frozen */
  void* data;                       /* may be NULL while planning; a, b and c are only read */
  opdock_dtype dtype;
  uint32_t flags;
  int64_t stride;       /* elements, at least the number of columns as stored */
  int64_t batch_stride; /* elements; 0: each product of the batch uses the same matrix */
  /* A factor in device memory, or NULL for 1. For a and b, the stored elements are multiplied by
   * it; for d, the results are multiplied before they are rounded. c has no scale. */
  const float* scale;
} opdock_gemm_matrix;

/* Activations of a number x. */
#define OPDOCK_GEMM_NONE 0
#define OPDOCK_GEMM_RELU 1
#define OPDOCK_GEMM_GELU 2      /* x * (1 + erf(x / sqrt(2))) / 2 */
#define OPDOCK_GEMM_GELU_TANH 3 /* GELU approximated by tanh(sqrt(2/pi) * (x + 0.044715 x^3)) */
#define OPDOCK_GEMM_SILU 4      /* x / (1 + exp(-x)) */

/* Flags of a product. */
/* float32 factors may be rounded to TF32 before they are multiplied. They may be without this flag
 * too, if the caller allows it (opdock_call_options.allows_tf32). */
#define OPDOCK_GEMM_TF32 1u
#define OPDOCK_GEMM_DETERMINISTIC 2u /* equal calls give equal bits */
#define OPDOCK_GEMM_RESIDUAL 4u      /* beta * C is added after the activation */

/* For each i below batch, with op(A) of m rows and k columns, op(B) of k rows and n columns:
 *   D[i] = activation(alpha * op(A[i]) * op(B[i]) + beta * C[i] + bias), or with
 *   OPDOCK_GEMM_RESIDUAL activation(alpha * op(A[i]) * op(B[i]) + bias) + beta * C[i].
 * Products are added up in float32, those of int8 in int32.
 *
 *   a, b                    d                               c
 *   float32                 float32                         d's
 *   float16                 float16, float32                d's
 *   bfloat16                bfloat16, float32               d's
 *   int8                    int32 (alpha 1, nothing else)   none
 *                           float32, float16, bfloat16      d's
 *   float8_e4m3fn or        float32, float16, bfloat16      d's
 *     float8_e5m2, each     float8_e4m3fn, float8_e5m2      float32, float16 or bfloat16
 *
 * c may have the same elements as d; otherwise d shares no memory with the others. */
typedef struct opdock_gemm {
  uint32_t struct_size;
  uint32_t flags;          /* OPDOCK_GEMM_TF32, … */
  int64_t m, n, k;         /* each at most 2^31 - 1; 0 is fine */
  int64_t batch;           /* likewise */
  opdock_gemm_matrix a, b; /* read */
  opdock_gemm_matrix c;    /* read if beta is not 0 */
  opdock_gemm_matrix d;    /* written; not transposed */
  float alpha, beta;
  const void* bias; /* n elements, added to each row; NULL for none. Not read while planning */
  opdock_dtype bias_dtype; /* float32, float16 or bfloat16; bits 0 without a bias */
  uint32_t activation;     /* OPDOCK_GEMM_NONE, … */
} opdock_gemm;

/* The table of the extension "opdock.gemm/1".
 *
 *   static opdock_gemm product(int64_t m, int64_t n, int64_t k) {  // contiguous matrices
 *     const opdock_dtype f32 = {OPDOCK_DTYPE_FLOAT, 32, 1};
 *     return (opdock_gemm){.struct_size = sizeof(opdock_gemm), .m = m, .n = n, .k = k, .batch = 1,
 *                          .alpha = 1, .a = {.dtype = f32, .stride = k},
 *                          .b = {.dtype = f32, .stride = n}, .d = {.dtype = f32, .stride = n}};
 *   }
 *   static opdock_status in_plan(const opdock_call* call, opdock_gemm what, opdock_plan* plan) {
 *     const opdock_gemm_table* gemm = call->host->get_extension(OPDOCK_GEMM_1);
 *     if (gemm != NULL) return gemm->plan(call, &what, &plan->workspace_bytes);
 *     return call->host->set_error(call, OPDOCK_UNSUPPORTED, "this host has no " OPDOCK_GEMM_1);
 *   }
 *   static opdock_status in_prepare(const opdock_call* call) {  // the sizes do not matter
 *     const opdock_gemm_table* gemm = call->host->get_extension(OPDOCK_GEMM_1);
 *     const opdock_gemm what = product(0, 0, 0);
 *     return gemm == NULL ? OPDOCK_OK : gemm->prepare(call, &what);
 *   }
 *   static opdock_status in_run(const opdock_call* call, opdock_gemm what, void* const data[3]) {
 *     const opdock_gemm_table* gemm = call->host->get_extension(OPDOCK_GEMM_1);
 *     what.a.data = data[0], what.b.data = data[1], what.d.data = data[2];
 *     return gemm->run(call, &what, call->workspace, call->workspace_bytes);
 *   }
 */
typedef struct opdock_gemm_table {
  uint32_t struct_size;
  uint32_t reserved;
  /* [planning]
   * Checks the product and writes the size in bytes of the workspace that run needs, aligned to 256
   * bytes. Touches no device and reads no address: bias_dtype says whether there is a bias.
   * OPDOCK_INVALID_ARGUMENT or OPDOCK_UNSUPPORTED, with what is wrong with the product. */
  opdock_status (*plan)(const opdock_call* call, const opdock_gemm* what,
                        uint64_t* workspace_bytes);
  /* [preparing]
   * Makes ready what run needs for products of these dtypes and this activation, of any size: opens
   * the library, or compiles kernels. Reads no addresses. Blocks. Without it the first run does the
   * same, and fails if a stream is being captured. */
  opdock_status (*prepare)(const opdock_call* call, const opdock_gemm* what);
  /* [running]
   * Enqueues the product on the call's stream; on the CPU, computes it. workspace: memory of the
   * size that plan asked for, which nothing else uses until the product is done. */
  opdock_status (*run)(const opdock_call* call, const opdock_gemm* what, void* workspace,
                       uint64_t workspace_bytes);
} opdock_gemm_table;

#ifdef __cplusplus
}
#endif
#endif /* OPDOCK_GEMM_H_ */
