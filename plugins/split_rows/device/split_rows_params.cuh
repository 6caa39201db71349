// Parameters of the kernel, filled in by split_rows.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace split_rows {

inline constexpr int kThreads = 256;
inline constexpr int kUnitsPerThread = 8;
// Pieces per launch: the parameters of a launch may take 4 KiB.
inline constexpr int kMaxPieces = 128;

// Pieces of memory that together make up the memory at `whole`, in units of as many bytes as the
// kernel moves at once. None is empty.
struct Pieces {
  void* whole;
  void* piece[kMaxPieces];
  long long end[kMaxPieces];  // end of each piece in `whole`, ascending
  int count;                  // at least 1
  int joins;                  // 1: copies the pieces to the whole; 0: the whole to the pieces
};

}  // namespace split_rows
