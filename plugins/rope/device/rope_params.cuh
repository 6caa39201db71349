// Parameters of the kernels, on the GPU and on the CPU, filled in by the host code.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace rope {

inline constexpr int kThreads = 256;    // upper bound of the threads per block
inline constexpr int kFewThreads = 64;  // the same for launches of few blocks
inline constexpr int kMaxHeads = 4;     // heads that a thread rotates by the same angles

// q or k. Strides are in elements; the last dimension has stride 1.
struct Heads {
  const void* in;
  void* out;
  long long count;  // number of a token's heads
  long long in_sequence, in_token, in_head;
  long long out_sequence, out_token, out_head;
};

struct Params {
  Heads q, k;
  const void* cos;  // [length, rotated / 2]
  const void* sin;
  const void* positions;  // null: a token's position is its index in its sequence
  long long length;       // rows of the tables
  long long cos_row, sin_row;
  long long position_sequence, position_token;
  long long tokens;    // in all sequences, below 2^31
  long long in_each;   // tokens of one sequence
  long long rotated;   // elements at the beginning of a head
  long long copied;    // elements that follow; 0 on a GPU if they are in place
  int wide_positions;  // positions are int64, else int32
  int narrow_tables;   // the tables have the heads' dtype, else float
  int interleaved;
  int inverse;  // rotates by the negative angles

  // The following are for a GPU's launch.
  int by_vectors;   // everything consists of aligned 16-byte pieces
  int is_simple;    // by_vectors holds, there is one sequence, nothing is copied, and a head fits
                    // into one block
  int head_blocks;  // blocks that a token's heads are spread over
  long long q_groups, groups;  // groups of heads for one thread each: in q, and in all

  // Sequence and index within it of a token that has number `token` among all.
  struct Place {
    long long sequence, token;
  };
  OPDOCK_HOST_DEVICE Place place(long long token) const {
    if (in_each == tokens) return {0, token};
    const unsigned number = static_cast<unsigned>(token), each = static_cast<unsigned>(in_each);
    return {number / each, number % each};
  }
  // Returns the token's row of the tables, which may be outside of them.
  OPDOCK_HOST_DEVICE long long position(const Place& at) const {
    if (!positions) return at.token;
    const long long i = at.sequence * position_sequence + at.token * position_token;
    return wide_positions ? static_cast<const long long*>(positions)[i]
                          : static_cast<const int*>(positions)[i];
  }
  OPDOCK_HOST_DEVICE bool has_row(long long position) const {
    return position >= 0 && position < length;
  }
};

}  // namespace rope
