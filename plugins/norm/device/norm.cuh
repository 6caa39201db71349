// Layer normalisation along the last dimension, with the addition before it; in float.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "norm_params.cuh"
#include "opdock/device.cuh"

namespace layernorm {

using namespace opdock;
using opdock::rsqrt;  // named, this wins over the compiler's own

template <class T>
struct Row {
  const T* x;
  const T* residual;  // null: none
  T* out;
  T* sum;

  OPDOCK_DEVICE Row(const Params& p, int64_t row) {
    long long offset[4];
    p.rows.locate(row, offset);
    x = static_cast<const T*>(p.x) + offset[0];
    residual = p.residual ? static_cast<const T*>(p.residual) + offset[1] : nullptr;
    out = static_cast<T*>(p.out) + offset[2];
    sum = static_cast<T*>(p.sum) + offset[3];
  }

  // Element i of what is normalised. The sum is stored, and what is normalised is the sum as it is
  // stored, rounded.
  OPDOCK_DEVICE float take(int64_t i) const {
    if (!residual) return to_float(x[i]);
    const T stored = from_float<T>(to_float(x[i]) + to_float(residual[i]));
    sum[i] = stored;
    return to_float(stored);
  }
};

template <class T>
OPDOCK_DEVICE float affine(const Params& p, float y, int64_t i) {
  if (p.weight) y *= to_float(static_cast<const T*>(p.weight)[i]);
  if (p.bias) y += to_float(static_cast<const T*>(p.bias)[i]);
  return y;
}

// Rows of at most kShortRowItems elements a lane: one warp a row.
template <class T>
OPDOCK_KERNEL(kShortRowThreads)
short_rows(Params p) {
  const int lane = thread_index() % warp_width();
  const int64_t warps = block_threads() / warp_width();
  const int64_t first = block_index() * warps + thread_index() / warp_width();
  const float count = static_cast<float>(p.length);
  for (int64_t r = first; r < p.rows.count; r += grid_blocks() * warps) {
    const Row<T> row(p, r);
    float value[kShortRowItems];
    float sum = 0.0f;
    OPDOCK_UNROLL
    for (int k = 0; k < kShortRowItems; ++k) {
      const int i = lane + k * warp_width();
      value[k] = i < p.length ? row.take(i) : 0.0f;
      sum += value[k];
    }
    const float mean = warp_reduce<Sum>(sum) / count;
    float squares = 0.0f;
    OPDOCK_UNROLL
    for (int k = 0; k < kShortRowItems; ++k) {
      const int i = lane + k * warp_width();
      value[k] -= mean;
      if (i < p.length) squares += value[k] * value[k];
    }
    const float factor = rsqrt(warp_reduce<Sum>(squares) / count + p.eps);
    OPDOCK_UNROLL
    for (int k = 0; k < kShortRowItems; ++k) {
      const int i = lane + k * warp_width();
      if (i < p.length) row.out[i] = from_float<T>(affine<T>(p, value[k] * factor, i));
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
  const float count = static_cast<float>(p.length);
  for (int64_t r = block_index(); r < p.rows.count; r += grid_blocks()) {
    const Row<T> row(p, r);
    float value[Items][kSize];
    float sum = 0.0f;
    OPDOCK_UNROLL
    for (int k = 0; k < Items; ++k) {
      const int64_t v = thread_index() + static_cast<int64_t>(k) * block_threads();
      Vector<T> x = {};
      if (v < vectors) x = load_vector(row.x + v * kSize);
      if (v < vectors && row.residual) {
        const Vector<T> residual = load_vector(row.residual + v * kSize);
        OPDOCK_UNROLL
        for (int j = 0; j < kSize; ++j)
          x.at[j] = from_float<T>(to_float(x.at[j]) + to_float(residual.at[j]));
        store_vector(row.sum + v * kSize, x);
      }
      OPDOCK_UNROLL
      for (int j = 0; j < kSize; ++j) {
        value[k][j] = to_float(x.at[j]);
        sum += value[k][j];
      }
    }
    const float mean = block_reduce<Sum>(sum, scratch) / count;
    float squares = 0.0f;
    OPDOCK_UNROLL
    for (int k = 0; k < Items; ++k) {
      const int64_t v = thread_index() + static_cast<int64_t>(k) * block_threads();
      if (v >= vectors) continue;
      OPDOCK_UNROLL
      for (int j = 0; j < kSize; ++j) {
        value[k][j] -= mean;
        squares += value[k][j] * value[k][j];
      }
    }
    const float factor = rsqrt(block_reduce<Sum>(squares, scratch) / count + p.eps);
    OPDOCK_UNROLL
    for (int k = 0; k < Items; ++k) {
      const int64_t v = thread_index() + static_cast<int64_t>(k) * block_threads();
      if (v >= vectors) continue;
      Vector<T> weight = {}, bias = {}, out;
      if (p.weight) weight = load_vector(static_cast<const T*>(p.weight) + v * kSize);
      if (p.bias) bias = load_vector(static_cast<const T*>(p.bias) + v * kSize);
      OPDOCK_UNROLL
      for (int j = 0; j < kSize; ++j) {
        float y = value[k][j] * factor;
        if (p.weight) y *= to_float(weight.at[j]);
        if (p.bias) y += to_float(bias.at[j]);
        out.at[j] = from_float<T>(y);
      }
      store_vector(row.out + v * kSize, out);
    }
  }
}

// Any row: three passes over memory, element by element. One block a row.
template <class T>
OPDOCK_KERNEL(kRowThreads)
any_rows(Params p) {
  OPDOCK_SHARED(float, scratch, kRowThreads / warp_width());
  const float count = static_cast<float>(p.length);
  for (int64_t r = block_index(); r < p.rows.count; r += grid_blocks()) {
    const Row<T> row(p, r);
    float sum = 0.0f;
    for (int64_t i = thread_index(); i < p.length; i += block_threads()) sum += row.take(i);
    const float mean = block_reduce<Sum>(sum, scratch) / count;
    // Each thread reads again what it alone has read or written.
    const T* x = row.residual ? row.sum : row.x;
    float squares = 0.0f;
    for (int64_t i = thread_index(); i < p.length; i += block_threads()) {
      const float deviation = to_float(x[i]) - mean;
      squares += deviation * deviation;
    }
    const float factor = rsqrt(block_reduce<Sum>(squares, scratch) / count + p.eps);
    for (int64_t i = thread_index(); i < p.length; i += block_threads())
      row.out[i] = from_float<T>(affine<T>(p, (to_float(x[i]) - mean) * factor, i));
  }
}

}  // namespace layernorm
