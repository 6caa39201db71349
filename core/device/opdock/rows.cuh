// Where the rows of several tensors lie that have one batch shape: a kernel parameter, which host
// code fills in (opdock/rows.hpp) and CPU kernels use too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace opdock {

// A row is what lies along the last dimension; the others are the batch.
inline constexpr int kMaxBatchDims = 15;

// What kernels over rows and opdock/row_op.hpp, which launches them, agree on.
inline constexpr int kShortRowItems = 8;      // elements of a short row that a lane holds, at most
inline constexpr int kShortRowThreads = 128;  // of a block where each warp has a row
inline constexpr int kRowThreads = 1024;      // of a block that has a row, at most

template <int Tensors>
struct Rows {
  long long count;  // rows in all
  int ndim;         // batch dimensions left after those were merged that lie evenly spaced
  long long size[kMaxBatchDims];
  long long stride[Tensors][kMaxBatchDims];  // elements; 0 where a tensor is broadcast

  // offset[t] becomes the position of row `row` in tensor t, in elements from its first.
  OPDOCK_HOST_DEVICE void locate(long long row, long long (&offset)[Tensors]) const {
    for (int t = 0; t < Tensors; ++t) offset[t] = 0;
    for (int i = ndim - 1; i > 0; --i) {
      const long long at = row % size[i];
      row /= size[i];
      for (int t = 0; t < Tensors; ++t) offset[t] += at * stride[t][i];
    }
    if (ndim > 0)
      for (int t = 0; t < Tensors; ++t) offset[t] += row * stride[t][0];
  }
};

}  // namespace opdock
