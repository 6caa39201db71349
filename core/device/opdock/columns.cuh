// Sums over rows, column by column, in two stages of a fixed order: the same bits each time. The
// first adds up chunks of rows; column_sums.cuh has the second. Host code, CPU kernels and device
// code use this.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace opdock {

inline constexpr int kColumnThreads = 256;  // of a block of the first stage
inline constexpr int kColumnLanes = 32;     // of these that lie side by side in a row, at most
inline constexpr int kTotalThreads = 512;   // of a block of the second stage
inline constexpr int kTotalColumns = 32;    // that it adds up

// How rows are divided into chunks; by their number and length alone.
struct ColumnChunks {
  long long rows;   // of a chunk; the last one may have fewer
  long long count;  // chunks, at most 4096
};

// rows, length: at least 1.
OPDOCK_HOST_DEVICE ColumnChunks column_chunks(long long rows, long long length) {
  // Long chunks, whose sums are little beside what is added up; but enough of them for a GPU.
  const long long tiles = (length + 255) / 256;
  long long size = 128;
  while (size > 16 && (rows + size - 1) / size * tiles < 1024) size /= 2;
  while ((rows + size - 1) / size > 4096) size *= 2;
  return {size, (rows + size - 1) / size};
}

// Of a kernel of the first stage: where the chunks' sums go, of as many tensors as it writes.
template <int Outputs>
struct ColumnSums {
  void* partial[Outputs];  // those of the first chunk; null: the tensor is not summed
  long long columns;       // numbers from one chunk's sums to the next one's
  ColumnChunks chunks;
  int lanes;  // threads of a block that lie side by side in a row
};

inline constexpr int kTotalOutputs = 2;  // of one launch of the second stage, at most

// The second stage's kernel parameter. All outputs have one dtype.
struct ColumnTotals {
  const float* partial[kTotalOutputs];  // [chunks, columns]
  void* out[kTotalOutputs];             // [columns]
  long long columns;
  long long chunks;
  int element;  // of out: 0 float, 1 half, 2 bfloat16
};

}  // namespace opdock
