// The activations on the CPU: what the plugin hands to the kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/activation_params.cuh"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace activation {

// Elements for which a thread is worth waking: some ten microseconds of work.
inline constexpr int64_t kGrain = 16384;

// Rows are worked on in pieces, so that long ones are shared by threads.
struct Pieces {
  explicit Pieces(int64_t length)
      : size(length < kGrain ? length : kGrain), per_row((length + size - 1) / size) {}
  int64_t size;  // of a piece; a row's last one may have fewer elements
  int64_t per_row;
};

struct ForwardJob {
  opdock_dtype dtype;  // float32, float16, bfloat16 or float64
  Pieces pieces;
  ForwardParams params;
};

struct BackwardJob {
  opdock_dtype dtype;
  Pieces pieces;
  BackwardParams params;  // the chunks' sums are float, of float64 double
  const void* partial;    // the chunks' sums: [chunks, columns]; null: there are none
  void* totals;           // [columns]
};

OPDOCK_SIMD_DECLARE(
    // Of all rows' pieces, in their order, those from begin to end - 1.
    void forward(const ForwardJob& job, int64_t begin, int64_t end);
    void backward(const BackwardJob& job, int64_t begin, int64_t end);
    // Of the chunks' pieces, in the order of chunks.
    void backward_sums(const BackwardJob& job, int64_t begin, int64_t end);
    // Columns begin … end - 1 of the totals.
    void column_totals(const BackwardJob& job, int64_t begin, int64_t end))

// Calls body(begin, end) on disjoint ranges that make up all rows' pieces, on the host's threads.
template <class Call, class Body>
void run_pieces(const Call& call, int64_t rows, const Pieces& pieces, const Body& body) {
  const int64_t grain = kGrain / pieces.size;
  call.parallel_for(rows * pieces.per_row, grain < 1 ? 1 : grain, body);
}

}  // namespace activation
