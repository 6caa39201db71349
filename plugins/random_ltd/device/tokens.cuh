// Copies the tokens that an index chooses, in either direction, and clears memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
#include "tokens_params.cuh"

namespace random_ltd {

using namespace opdock;

template <int Bytes>
OPDOCK_DEVICE Unit<Bytes>* unit_at(void* data, int64_t unit) {
  return static_cast<Unit<Bytes>*>(data) + unit;
}

// Threads of a block copy some tokens at the same time, 2^lane_bits threads each of them.
template <int Bytes>
OPDOCK_KERNEL(kThreads)
copy_tokens(CopyParams p) {
  pdl_wait_and_trigger();
  const int lanes = 1 << p.lane_bits, lane = thread_index() & (lanes - 1);
  const int64_t per_block = block_threads() >> p.lane_bits;
  const int64_t step = grid_blocks() * per_block;
  for (int64_t row = block_index() * per_block + (thread_index() >> p.lane_bits); row < p.rows;
       row += step) {
    const int64_t batch = row / p.kept, place = row - batch * p.kept;
    const int64_t token = p.index[row];
    const bool is_there = token >= 0 && token < p.tokens;
    if (!is_there && !p.gathers) continue;
    // A token that is not there is read from no address.
    const int64_t all = batch * p.all.batch_stride + (is_there ? token : 0) * p.all.token_stride;
    const int64_t part = batch * p.part.batch_stride + place * p.part.token_stride;
    void* const from = p.gathers ? p.all.data : p.part.data;
    void* const to = p.gathers ? p.part.data : p.all.data;
    const int64_t from_unit = p.gathers ? all : part, to_unit = p.gathers ? part : all;
    for (int64_t begin = lane; begin < p.units; begin += lanes * kUnitsPerThread) {
      Unit<Bytes> unit[kUnitsPerThread] = {};
      OPDOCK_UNROLL
      for (int k = 0; k < kUnitsPerThread; ++k) {
        const int64_t i = begin + k * lanes;
        if (i < p.units && is_there)
          unit[k] = load_unit<Bytes>(unit_at<Bytes>(from, from_unit + i));
      }
      OPDOCK_UNROLL
      for (int k = 0; k < kUnitsPerThread; ++k) {
        const int64_t i = begin + k * lanes;
        if (i < p.units) store_unit<Bytes>(unit_at<Bytes>(to, to_unit + i), unit[k]);
      }
    }
  }
}

template <int Bytes>
OPDOCK_KERNEL(kThreads)
clear(ClearParams p) {
  pdl_wait_and_trigger();
  const int64_t step = grid_blocks() * block_threads();
  for (int64_t i = block_index() * block_threads() + thread_index(); i < p.units; i += step)
    store_unit<Bytes>(unit_at<Bytes>(p.data, i), Unit<Bytes>{});
}

}  // namespace random_ltd
