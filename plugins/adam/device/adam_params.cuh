// What the kernels take, filled in by adam.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace adam {

inline constexpr int kThreads = 256;  // of a block
inline constexpr int kItems = 4;      // consecutive elements of a thread
inline constexpr int kChunk = kThreads * kItems;
// Of one launch: its parameters may take 4 KiB.
inline constexpr int kMostTensors = 76;

// A number as a sum: high is next to it on the side of 0, low what is missing. One float has too
// few digits (with 0.999 as a float averages of equal numbers go wrong by 1 in 60,000), and as low
// is not 0, an infinite number times both is infinite.
template <class T>
struct Factor {
  T high, low;
};

// What the number of the step, t, comes to. With s = sqrt(1 - beta2^t):
struct Schedule {
  double rate;  // lr / (1 - beta1^t) * s: averages of squares need not be divided by s * s
  double eps;   // eps * s
  double keep;  // of weights: 1 - lr * weight_decay
};

OPDOCK_HOST_DEVICE double power(double base, long long exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 != 0) result *= base;
    base *= base;
  }
  return result;
}

// The square root of a number from 0 to 1 by Newton's method, which comes from above: device code
// has none of a double, and so all devices have the same one.
OPDOCK_HOST_DEVICE double square_root(double number) {
  double root = 1;
  for (double next = (1 + number) / 2; next < root; next = (root + number / root) / 2) root = next;
  return root;
}

// t: from 1 on.
OPDOCK_HOST_DEVICE Schedule make_schedule(double lr, double beta1, double beta2, double eps,
                                          double weight_decay, long long t) {
  const double root = square_root(1 - power(beta2, t));
  return {lr / (1 - power(beta1, t)) * root, eps * root, 1 - lr * weight_decay};
}

// What the elements' step takes of it; in the call's workspace, written by begin().
struct alignas(16) Current {
  Factor<float> rate, keep;
  float eps;
  float scale;       // gradients are divided by it
  float is_skipped;  // not 0: nothing is to be changed
  float unused;
};

struct Begin {
  float* step;
  const float* lr;          // NULL: lr_number
  const float* grad_scale;  // NULL: 1
  const float* found_inf;   // NULL: 0
  Current* current;
  double lr_number, beta1, beta2, eps;
  double weight_decay;  // of weights
};

// Arrays have elements of the kernel's type T; those named in Params::is_float of float.
enum FloatArrays { kFloatWeights = 1, kFloatGrads = 2, kFloatAverages = 4 };

// The tensors of one launch. None is empty.
struct Params {
  void* weight[kMostTensors];  // what is updated: the parameters, or their masters
  const void* grad[kMostTensors];
  void* average[kMostTensors];  // of gradients
  void* square[kMostTensors];   // average of squared gradients
  void* copy[kMostTensors];     // parameters that have masters
  long long numel[kMostTensors];
  int end[kMostTensors];  // of each one's blocks, ascending
  int count;              // at least 1
  const Current* current;
  Factor<float> beta1, beta2;
  float rest1, rest2;      // 1 - beta1, 1 - beta2
  float weight_decay;      // of gradients
  float sign;              // -1 to maximise
  unsigned char is_float;  // FloatArrays
  bool has_copies;
  bool is_scaled;  // there is a grad_scale
};
static_assert(sizeof(Params) <= 4096);

}  // namespace adam
