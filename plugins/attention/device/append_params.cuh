// Parameters of append_kv's kernels, on the GPU and on the CPU, filled in by append_kv.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention_params.cuh"

namespace attention {

struct AppendParams {
  Heads q, k, v, out, k_cache, v_cache;  // out: the rotated queries
  Scales k_scale, v_scale;               // for int8 and float8
  const int* start;                      // for each batch, the first token's place in the cache
  // Tables of cosines and sines, with row strides in elements; NULL: nothing is rotated.
  const void *cos, *sin;
  long long cos_row, sin_row, length;
  int narrow_tables;  // the tables have the queries' type, else float
  int rotated;        // rotated elements of a head, from the first one on
  int interleaved;    // pairs are adjacent elements; else the two halves of the rotated elements
  long long batch, tokens, places;
  int heads, kv_heads, size;
  int cache;  // a Cache

  // Returns the place of token t of batch b; -1: there is no such place.
  OPDOCK_HOST_DEVICE long long place(long long b, long long t) const {
    const long long first = start[b], at = first + t;
    return first < 0 || at >= places || (cos && at >= length) ? -1 : at;
  }
  // Returns the element that forms a pair with element `at`.
  OPDOCK_HOST_DEVICE int partner(int at) const {
    if (interleaved) return at ^ 1;
    return at < rotated / 2 ? at + rotated / 2 : at - rotated / 2;
  }
  OPDOCK_HOST_DEVICE int pair(int at) const { return interleaved ? at / 2 : at % (rotated / 2); }
};

inline constexpr int kAppendThreads = 128;
inline constexpr int kMaxSize = 256;  // upper bound of the elements of a head

}  // namespace attention
