// Sums over rows, column by column, in two stages with a fixed order of additions: the results have
// the same bits each time. The first stage adds up chunks of rows, the second adds up the chunks'
// sums; column_sums.cuh has the device code. Host code, CPU kernels and device code use this file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace opdock {

inline constexpr int kColumnThreads = 256;  // threads of a block of the first stage
inline constexpr int kColumnLanes = 32;     // of these, the most that share a row
inline constexpr int kTotalThreads = 512;   // threads of a block of the second stage
inline constexpr int kTotalColumns = 32;    // columns of a block of the second stage

// How rows are divided into chunks, which depends only on their number and length.
struct ColumnChunks {
  long long rows;   // of a chunk; the last one may have fewer
  long long count;  // chunks, at most 4096
};

// rows, length: at least 1.
OPDOCK_HOST_DEVICE ColumnChunks column_chunks(long long rows, long long length) {
  // Chunks are long, so that their sums are few compared with the elements, but there are enough of
  // them for a GPU.
  const long long tiles = (length + 255) / 256;
  long long size = 128;
  while (size > 16 && (rows + size - 1) / size * tiles < 1024) size /= 2;
  while ((rows + size - 1) / size > 4096) size *= 2;
  return {size, (rows + size - 1) / size};
}

// A parameter of a kernel of the first stage: where the chunks' sums of its Outputs tensors go.
template <int Outputs>
struct ColumnSums {
  void* partial[Outputs];  // sums of the first chunk; null: the tensor is not summed
  long long columns;       // stride from one chunk's sums to the next one's, in numbers
  ColumnChunks chunks;
  int lanes;  // adjacent threads of a block that share a row
};

inline constexpr int kTotalOutputs = 2;  // outputs of one launch of the second stage, at most

// The second stage's kernel parameter. All outputs have one dtype.
struct ColumnTotals {
  const float* partial[kTotalOutputs];  // [chunks, columns]
  void* out[kTotalOutputs];             // [columns]
  long long columns;
  long long chunks;
  int element;  // dtype of out: 0 float, 1 half, 2 bfloat16
};

}  // namespace opdock
