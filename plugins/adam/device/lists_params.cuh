// Lists of tensors in a kernel's parameters, and arithmetic that the CPU shares.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace optimizer {

inline constexpr int kThreads = 256;  // threads per block
inline constexpr int kItems = 4;      // consecutive elements per thread
inline constexpr int kChunk = kThreads * kItems;

// A number as a sum: `high` is its neighbour towards 0, and `low` the rest. One float has too few
// digits: with 0.999 as a float, averages of equal numbers drift by 1 in 60,000. Because `low` is
// not 0, an infinite number times both is infinite.
template <class T>
struct Factor {
  T high, low;
};

// Arrays have elements of the kernel's type T, except those named in TensorLists::is_float, which
// have floats.
enum FloatArrays { kFloatWeights = 1, kFloatGrads = 2, kFloatStates = 4 };

// The tensors of one launch. The parameters of a launch may take 4 KiB, which limits `Tensors`.
template <int States, int Tensors>
struct TensorLists {
  static constexpr int kStates = States;
  static constexpr int kMaxTensors = Tensors;

  void* weight[Tensors];  // the tensors to update: the parameters, or their masters
  const void* grad[Tensors];
  void* state[States][Tensors];  // what the optimizer keeps of earlier gradients
  void* copy[Tensors];           // parameters that have masters
  long long numel[Tensors];
  int end[Tensors];        // end of each tensor's blocks, ascending
  int count;               // at least 1
  unsigned char is_float;  // FloatArrays
  bool has_copies;
};

// Numbers on the device; each may be NULL.
struct Scalars {
  const float* lr;          // the learning rate, else a number of the parameters
  const float* grad_scale;  // gradients are divided by it, else by 1
  const float* found_inf;   // if it is not 0, nothing is to be changed
};

}  // namespace optimizer
