// Sorts rows of numbers of tokens by counting how often each occurs, some thousand tokens at a
// time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
#include "tokens_params.cuh"

namespace random_ltd {

using namespace opdock;

// Returns the sum of the values of the threads before this one, and sets *total to that of all. All
// threads of the block take part. `sums` is shared memory for a number of each warp; it may be used
// again after the next block_barrier().
OPDOCK_DEVICE uint32_t sum_before(uint32_t value, uint32_t* sums, uint32_t* total) {
  constexpr int kWidth = warp_width();
  const int lane = thread_index() % kWidth, warp = thread_index() / kWidth;
  uint32_t inclusive = value;
  OPDOCK_UNROLL
  for (int by = 1; by < kWidth; by *= 2) {
    const uint32_t lower = shuffle_up(inclusive, by);
    if (lane >= by) inclusive += lower;
  }
  if (lane == kWidth - 1) sums[warp] = inclusive;
  block_barrier();
  uint32_t before = inclusive - value, all = 0;
  for (int i = 0; i < block_threads() / kWidth; ++i) {
    if (i < warp) before += sums[i];
    all += sums[i];
  }
  *total = all;
  return before;
}

// A block sorts a row at a time.
OPDOCK_KERNEL(kThreads) sort_tokens(SortParams p) {
  constexpr int kOwn = kCounts / kThreads;  // consecutive counts of a thread
  OPDOCK_SHARED(uint32_t, count, kCounts);
  OPDOCK_SHARED(uint32_t, sums, kThreads / warp_width());
  pdl_wait_and_trigger();
  for (int64_t row = block_index(); row < p.rows; row += grid_blocks()) {
    const int* const index = p.index + row * p.kept;
    int* const out = p.out + row * p.kept;
    int64_t done = 0;
    for (int64_t first = 0; first < p.tokens; first += kCounts) {
      const int64_t end = first + kCounts < p.tokens ? first + kCounts : p.tokens;
      block_barrier();  // until the counts before have been read
      for (int i = thread_index(); i < kCounts; i += kThreads) count[i] = 0;
      block_barrier();
      for (int64_t i = thread_index(); i < p.kept; i += kThreads) {
        const int64_t token = index[i];
        if (token >= first && token < end) atomic_add(&count[token - first], 1u);
      }
      block_barrier();
      const int own = thread_index() * kOwn;
      uint32_t sum = 0, total;
      for (int i = 0; i < kOwn; ++i) sum += count[own + i];
      int64_t place = done + sum_before(sum, sums, &total);
      for (int i = 0; i < kOwn; ++i)
        for (uint32_t k = 0; k < count[own + i]; ++k)
          out[place++] = static_cast<int>(first) + own + i;
      done += total;
    }
    for (int64_t i = done + thread_index(); i < p.kept; i += kThreads) out[i] = -1;
  }
}

}  // namespace random_ltd
