// Reductions over the threads of a warp and of a block, for any width of a warp.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/target.cuh"

namespace opdock {

struct Sum {
  static OPDOCK_DEVICE float identity() { return 0.0f; }
  static OPDOCK_DEVICE float combine(float a, float b) { return a + b; }
};
struct Max {
  static OPDOCK_DEVICE float identity() { return -infinity(); }
  static OPDOCK_DEVICE float combine(float a, float b) { return max(a, b); }
};

// Warp reduce: returns the combination over all lanes, in every lane. All lanes of the warp take
// part.
template <typename Op, int Width = warp_width()>
OPDOCK_DEVICE float warp_reduce(float value) {
  OPDOCK_UNROLL
  for (int mask = Width / 2; mask > 0; mask /= 2)
    value = Op::combine(value, shuffle_xor(value, mask));
  return value;
}

// Sums four numbers over all lanes at once: lane i gets the sum of values[i % 4]. lane: the
// caller's index in its warp. All lanes of the warp take part.
template <int Width = warp_width()>
OPDOCK_DEVICE float warp_reduce4(const float (&values)[4], int lane) {
  const bool odd = (lane & 1) != 0, high = (lane & 2) != 0;
  const float low_pair =
      (odd ? values[1] : values[0]) + shuffle_xor(odd ? values[0] : values[1], 1);
  const float high_pair =
      (odd ? values[3] : values[2]) + shuffle_xor(odd ? values[2] : values[3], 1);
  float sum = (high ? high_pair : low_pair) + shuffle_xor(high ? low_pair : high_pair, 2);
  OPDOCK_UNROLL
  for (int mask = Width / 2; mask > 2; mask /= 2) sum += shuffle_xor(sum, mask);
  return sum;
}

// Block reduce: returns the combination over all threads of a one-dimensional block of whole warps,
// in every thread. All threads of the block take part. `scratch` is shared memory for one float for
// each warp; it may be used again after the next block_barrier(), or at once by the next
// block_reduce().
template <typename Op, int Width = warp_width()>
OPDOCK_DEVICE float block_reduce(float value, float* scratch) {
  value = warp_reduce<Op, Width>(value);
  const int warps = block_threads() / Width;
  if (warps == 1) return value;
  const int lane = thread_index() % Width;
  const int warp = thread_index() / Width;
  block_barrier();  // other threads may still read the scratch of an earlier reduction
  if (lane == 0) scratch[warp] = value;
  block_barrier();
  float total = Op::identity();
  for (int i = lane; i < warps; i += Width) total = Op::combine(total, scratch[i]);
  return warp_reduce<Op, Width>(total);
}

}  // namespace opdock
