// Parameters of the kernels, filled in by random_ltd.cc and token_sort.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace random_ltd {

inline constexpr int kThreads = 256;       // threads per block
inline constexpr int kUnitsPerThread = 4;  // units that a thread loads before it stores them
inline constexpr int kCounts = 4096;       // tokens that a block counts at a time

// Where the tokens of a tensor lie, in units of as many bytes as the kernel moves at once.
struct Tokens {
  void* data;
  long long batch_stride;  // between rows of the batch
  long long token_stride;  // between tokens
};

struct CopyParams {
  Tokens all;        // the tokens among which the index chooses
  Tokens part;       // those that are chosen, one after the other
  const int* index;  // [batch, kept]
  long long rows;    // batch * kept
  long long kept;    // tokens that are chosen in a row of the batch
  long long tokens;  // of `all`
  long long units;   // of a token
  int lane_bits;     // binary logarithm of the threads of a token
  int gathers;       // 1: copies from `all` to `part`; 0: from `part` to `all`
};

struct ClearParams {
  void* data;
  long long units;
};

struct SortParams {
  const int* index;
  int* out;
  long long rows;
  long long kept;    // numbers of a row
  long long tokens;  // the numbers are below this one
};

}  // namespace random_ltd
