/*
 * opdock/formula_cpu.h: how compiled CPU code of a formula is called.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Opdock writes a formula as a C++ file (core/formula/cpu_source.h) that defines one function:
 *
 *   void NAME(const opdock_formula_call* call, int64_t begin, int64_t end);
 *
 * It computes pieces begin … end - 1 of a call. Several threads may do so at the same time, for
 * different pieces. Results may be the memory of inputs, at the same positions.
 *
 * A formula with sums over rows, a gradient, leaves the sums of chunks of rows, which the host adds
 * up. A piece is then a part of a chunk, some of its columns; pieces are counted chunk by chunk.
 * The `data` of a result that is summed are doubles: a sum for each column has chunks x columns of
 * them, a sum of all numbers one for each piece. Each piece writes its own.
 */
#ifndef OPDOCK_FORMULA_CPU_H_
#define OPDOCK_FORMULA_CPU_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes whenever code that was compiled with an older version of these headers must not be
 * called any more. */
#define OPDOCK_FORMULA_CPU_VERSION 1
/* The most row dimensions of a call. */
#define OPDOCK_FORMULA_MAX_DIMS 16
/* How many elements a piece of a row has, in a formula in which no row is computed as a whole.
 * In other formulas a piece is a row. */
#define OPDOCK_FORMULA_PIECE 16384

/* A tensor: element (i0, …, column) is at data + i0 * strides[0] + … + column * column_stride.
 * Strides are in elements, and may be 0 or negative. */
typedef struct opdock_formula_tensor {
  void* data;
  const int64_t* strides; /* of the row dimensions: [ndim] */
  int64_t column_stride;
} opdock_formula_tensor;

/* A number: `real` of a float, `integer` of an int or a bool. */
typedef struct opdock_formula_number {
  double real;
  int64_t integer;
} opdock_formula_number;

typedef struct opdock_formula_call {
  uint32_t struct_size;
  int32_t ndim;        /* row dimensions */
  const int64_t* size; /* of the row dimensions, the outermost first: [ndim] */
  int64_t rows;        /* the product of the sizes */
  int64_t columns;     /* elements of a row */
  /* The formula's inputs, results and numbers, in its order. */
  const opdock_formula_tensor* inputs;
  const opdock_formula_tensor* results;
  const opdock_formula_number* numbers;
  /* The rows of a chunk of a formula with sums over rows (the last chunk may have fewer), and the
   * parts of a chunk, each of OPDOCK_FORMULA_PIECE columns but the last. 0 without such sums. */
  int64_t chunk_rows;
  int64_t parts;
} opdock_formula_call;

typedef void (*opdock_formula_function)(const opdock_formula_call* call, int64_t begin,
                                        int64_t end);

#ifdef __cplusplus
}
#endif
#endif /* OPDOCK_FORMULA_CPU_H_ */
