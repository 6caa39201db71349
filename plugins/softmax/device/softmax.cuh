// Softmax along the last dimension, with scale, additive mask and causal masking; in float.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
#include "softmax_params.cuh"

namespace softmax {

using namespace opdock;
using opdock::exp;  // named, these win over the compiler's own
using opdock::max;

// One row's place in memory, and how many of its elements are not masked by causality.
template <class T>
struct Row {
  const T* x;
  const T* mask;  // null: none
  T* out;
  int64_t open;

  OPDOCK_DEVICE Row(const Params& p, int64_t row) {
    long long offset[3];
    p.rows.locate(row, offset);
    x = static_cast<const T*>(p.x) + offset[0];
    mask = p.mask ? static_cast<const T*>(p.mask) + offset[1] : nullptr;
    out = static_cast<T*>(p.out) + offset[2];
    open = p.causal ? row % p.queries + 1 + p.length - p.queries : p.length;
  }

  OPDOCK_DEVICE float score(const Params& p, int64_t i) const {
    if (i >= open) return -infinity();
    float value = to_float(x[i]) * p.scale;
    if (mask) value += to_float(mask[i * p.mask_step]);
    return value;
  }
};

// The value that is subtracted from each score. Without a finite score every exponential is then 0
// (or NaN, of a NaN), not the NaN of (-inf) - (-inf).
OPDOCK_DEVICE float base_of(float most) {
  return most == -infinity() ? 0.0f : most;
}
// Rows whose scores are all -infinity become 0.
OPDOCK_DEVICE float factor_of(float sum) {
  return sum == 0.0f ? 0.0f : 1.0f / sum;
}

// Rows of at most kShortRowItems elements a lane: one warp a row.
template <class T>
OPDOCK_KERNEL(kShortRowThreads)
short_rows(Params p) {
  const int lane = thread_index() % warp_width();
  const int64_t warps = block_threads() / warp_width();
  const int64_t first = block_index() * warps + thread_index() / warp_width();
  for (int64_t r = first; r < p.rows.count; r += grid_blocks() * warps) {
    const Row<T> row(p, r);
    float value[kShortRowItems];
    float most = -infinity();
    OPDOCK_UNROLL
    for (int k = 0; k < kShortRowItems; ++k) {
      const int i = lane + k * warp_width();
      value[k] = i < p.length ? row.score(p, i) : -infinity();
      most = max(most, value[k]);
    }
    const float base = base_of(warp_reduce<Max>(most));
    float sum = 0.0f;
    OPDOCK_UNROLL
    for (int k = 0; k < kShortRowItems; ++k) {
      value[k] = exp(value[k] - base);
      sum += value[k];
    }
    const float factor = factor_of(warp_reduce<Sum>(sum));
    OPDOCK_UNROLL
    for (int k = 0; k < kShortRowItems; ++k) {
      const int i = lane + k * warp_width();
      if (i < p.length) row.out[i] = from_float<T>(value[k] * factor);
    }
  }
}

// Rows of whole, aligned 16-byte vectors, at most Items of them a thread: read once, kept in
// registers, written once. One block a row.
template <class T, int Items>
OPDOCK_KERNEL(kRowThreads)
vector_rows(Params p) {
  OPDOCK_SHARED(float, scratch, kRowThreads / warp_width());
  constexpr int kSize = vector_size<T>;
  const int64_t vectors = p.length / kSize;
  for (int64_t r = block_index(); r < p.rows.count; r += grid_blocks()) {
    const Row<T> row(p, r);
    float value[Items][kSize];
    float most = -infinity();
    OPDOCK_UNROLL
    for (int k = 0; k < Items; ++k) {
      const int64_t v = thread_index() + static_cast<int64_t>(k) * block_threads();
      if (v < vectors) {
        const Vector<T> x = load_vector(row.x + v * kSize);
        Vector<T> mask = {};
        if (row.mask && p.mask_step) {
          mask = load_vector(row.mask + v * kSize);
        } else if (row.mask) {
          OPDOCK_UNROLL
          for (int j = 0; j < kSize; ++j) mask.at[j] = row.mask[0];
        }
        OPDOCK_UNROLL
        for (int j = 0; j < kSize; ++j) {
          float score = to_float(x.at[j]) * p.scale;
          if (row.mask) score += to_float(mask.at[j]);
          value[k][j] = v * kSize + j < row.open ? score : -infinity();
          most = max(most, value[k][j]);
        }
      } else {
        OPDOCK_UNROLL
        for (int j = 0; j < kSize; ++j) value[k][j] = -infinity();
      }
    }
    const float base = base_of(block_reduce<Max>(most, scratch));
    float sum = 0.0f;
    OPDOCK_UNROLL
    for (int k = 0; k < Items; ++k) {
      OPDOCK_UNROLL
      for (int j = 0; j < kSize; ++j) {
        value[k][j] = exp(value[k][j] - base);
        sum += value[k][j];
      }
    }
    const float factor = factor_of(block_reduce<Sum>(sum, scratch));
    OPDOCK_UNROLL
    for (int k = 0; k < Items; ++k) {
      const int64_t v = thread_index() + static_cast<int64_t>(k) * block_threads();
      if (v >= vectors) continue;
      Vector<T> out;
      OPDOCK_UNROLL
      for (int j = 0; j < kSize; ++j) out.at[j] = from_float<T>(value[k][j] * factor);
      store_vector(row.out + v * kSize, out);
    }
  }
}

// Any row: three passes over memory, element by element. One block a row.
template <class T>
OPDOCK_KERNEL(kRowThreads)
any_rows(Params p) {
  OPDOCK_SHARED(float, scratch, kRowThreads / warp_width());
  for (int64_t r = block_index(); r < p.rows.count; r += grid_blocks()) {
    const Row<T> row(p, r);
    float most = -infinity();
    for (int64_t i = thread_index(); i < p.length; i += block_threads())
      most = max(most, row.score(p, i));
    const float base = base_of(block_reduce<Max>(most, scratch));
    float sum = 0.0f;
    for (int64_t i = thread_index(); i < p.length; i += block_threads())
      sum += exp(row.score(p, i) - base);
    const float factor = factor_of(block_reduce<Sum>(sum, scratch));
    // Each thread writes only where it alone reads, so the output may be the input.
    for (int64_t i = thread_index(); i < p.length; i += block_threads())
      row.out[i] = from_float<T>(exp(row.score(p, i) - base) * factor);
  }
}

}  // namespace softmax
