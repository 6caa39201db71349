// Describes where the rows of several tensors with one batch shape lie: a kernel parameter, which
// host code fills in (opdock/rows.hpp) and CPU kernels use too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace opdock {

// A row is what lies along the last dimension; the others are the batch.
inline constexpr int kMaxBatchDims = 15;

// Numbers on which kernels over rows (row_team.cuh) and opdock/row_launch.hpp, which launches them,
// agree.
inline constexpr int kNarrowThreads = 128;   // threads of a block that has several rows
inline constexpr int kLongThreads = 512;     // threads of a block whose row is not held, at most
inline constexpr int kMaxRowThreads = 1024;  // threads of any block, at most
inline constexpr int kRowReductions = 3;     // reductions over one row, at most

// For blocks whose threads hold `held` vectors, in all tiles together: row_threads() is the most
// threads; row_blocks() is how many blocks must fit a multiprocessor, which decides how many
// registers a thread gets; has_clusters() is whether a row may have several blocks, a cluster.
// has_operands: the op reads other tensors next to the row, which needs more registers.
OPDOCK_HOST_DEVICE constexpr int row_threads(int held) {
  return held <= 4 ? 512 : held <= 8 ? 1024 : 256;
}
OPDOCK_HOST_DEVICE constexpr int row_blocks(int held, bool has_operands) {
  if (held > 4 && held <= 8) return 1;
  return has_operands && held == 4 ? 2 : 3;
}
OPDOCK_HOST_DEVICE constexpr bool has_clusters(int held) {
  return held >= 8;
}

// How the rows of one launch are spread over threads.
struct RowShape {
  int lane_bits;   // narrow rows: the binary logarithm of the threads of a row
  int by_vectors;  // long rows: nonzero if they are read by vectors
};

template <int Tensors>
struct Rows {
  long long count;  // rows in all
  int ndim;         // batch dimensions, after merging those that are evenly spaced
  long long size[kMaxBatchDims];
  long long stride[Tensors][kMaxBatchDims];  // elements; 0 where a tensor is broadcast

  // Whether the rows of each tensor are evenly spaced; then row r of tensor t is at r *
  // stride[t][0].
  OPDOCK_HOST_DEVICE bool is_flat() const { return ndim <= 1; }

  // Sets offset[t] to the position of row `row` in tensor t, in elements from its first element.
  // Flat: the rows are known to be flat.
  template <bool Flat = false>
  OPDOCK_HOST_DEVICE void locate(long long row, long long (&offset)[Tensors]) const {
    for (int t = 0; t < Tensors; ++t) offset[t] = 0;
    if (!Flat) {
      // Usually this loop has nothing to do.
      OPDOCK_NO_UNROLL
      for (int i = ndim - 1; i > 0; --i) {
        const long long at = row % size[i];
        row /= size[i];
        for (int t = 0; t < Tensors; ++t) offset[t] += at * stride[t][i];
      }
    }
    for (int t = 0; t < Tensors; ++t) offset[t] += row * stride[t][0];  // 0 if ndim is 0
  }
};

// The parameter of kernels over rows (row_team.cuh) that need nothing but the rows; the host part
// makes it by row_params() (rows.hpp).
template <int Tensors>
struct RowParams {
  void* data[Tensors];  // the first elements; NULL: the tensor is absent
  long long length;     // elements of a row, at least 1
  RowShape shape;       // set by launch_rows()
  Rows<Tensors> rows;

  // Sets begin[t] to the first element of row `row` in tensor t. Flat: as for Rows::locate().
  template <bool Flat = false, class T>
  OPDOCK_HOST_DEVICE void locate(long long row, T* (&begin)[Tensors]) const {
    long long offset[Tensors];
    rows.template locate<Flat>(row, offset);
    for (int t = 0; t < Tensors; ++t) begin[t] = static_cast<T*>(data[t]) + offset[t];
  }
};

}  // namespace opdock
