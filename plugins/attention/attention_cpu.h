// Declares the CPU kernels of attention, its gradients and append_kv, and the jobs that the plugin
// hands them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/added_params.cuh"
#include "device/append_params.cuh"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace attention {

// Rows of a unit of work, queries and heads that share keys; or keys.
constexpr int kUnitRows = 8;
constexpr int units_of(int64_t rows) {
  return static_cast<int>((rows + kUnitRows - 1) / kUnitRows);
}

struct Job {
  opdock_dtype dtype;  // dtype of q: float32, float16, bfloat16 or float64
  Params params;
  double scale;   // replaces params.scale
  int row_units;  // units for the rows of a batch and head of keys
};
struct BackwardJob {
  opdock_dtype dtype;
  BackwardParams params;
  double scale;              // replaces params.scale
  int row_units, key_units;  // units for the rows, and for the keys, of a batch and head of keys
};
struct AppendJob {
  opdock_dtype dtype;
  AppendParams params;
};

OPDOCK_SIMD_DECLARE(
    // Computes units begin … end - 1: unit (batch * heads of keys + head of keys) * row_units +
    // part.
    void attend(const Job& job, int64_t begin, int64_t end);
    // Computes the gradient of q for units begin … end - 1, numbered as those of attend(), and
    // leaves params.rows for the other function.
    void backward_queries(const BackwardJob& job, int64_t begin, int64_t end);
    // Computes the gradients of k and v for units begin … end - 1: unit (batch * heads of keys +
    // head of keys) * key_units + part, of kUnitRows keys each.
    void backward_keys(const BackwardJob& job, int64_t begin, int64_t end);
    // Computes rows begin … end - 1 of the gradient of what is added to the scores: row (batch *
    // heads + head) * queries + query, of those that the result has. sums: room for p.keys doubles.
    void added_units(const BackwardJob& job, const AddedParams& a, double* sums, int64_t begin,
                     int64_t end);
    // Appends tokens begin … end - 1 of all batches; their places must exist.
    void append_tokens(const AppendJob& job, int64_t begin, int64_t end))

// Converts from E4M3 as OCP defines it: no infinity, NaN is 0x7f; numbers beyond 448 do not occur.
inline float float8_value(unsigned char byte) {
  const unsigned rest = byte & 0x7fu;
  const float magnitude = rest == 0x7fu ? __builtin_nanf("")
                          : rest < 8    ? static_cast<float>(rest) * 0x1p-9f
                                        : __builtin_bit_cast(float, (rest << 20) + (120u << 23));
  return byte & 0x80u ? -magnitude : magnitude;
}

}  // namespace attention
