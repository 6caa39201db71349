// The parameters of formulas' kernels: rows, columns, and where each tensor has its elements. The
// host fills them in (core/formula/device_launch.cc).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace opdock::formula {

// Divides numbers below 2^31 by one number, by a multiplication.
struct FastDivisor {
  long long divisor = 1;
  unsigned int factor = 0;
  int shift = 0;

  OPDOCK_HOST_DEVICE unsigned int quotient(unsigned int n) const {
    return divisor == 1 ? n : detail::high_product(n, factor) >> shift;
  }
  OPDOCK_HOST_DEVICE long long quotient(long long n) const { return n / divisor; }
};

// The inputs come first, then the results. All counts and strides are in elements.
template <int Dims, int Tensors>
struct FormulaSpace {
  void* data[Tensors];
  long long step[Tensors];  // between columns
  long long stride[Tensors][Dims > 0 ? Dims : 1];
  FastDivisor size[Dims > 0 ? Dims : 1];  // of the dimensions of the rows
  FastDivisor slots;                      // vectors in a row
  long long rows, columns;
  int whole;  // nonzero if whole vectors of each tensor with a step of 1 are aligned
};

// The parameter of the kernel that adds up partial sums (formula_sums.cuh): N results, each with
// its own number of columns (1 of a total) and of partial sums of each.
template <int N>
struct PartialSums {
  void* partial[N];  // [parts, columns]
  void* out[N];
  long long step[N];  // between the columns of out
  long long columns[N];
  long long parts[N];
};

}  // namespace opdock::formula
