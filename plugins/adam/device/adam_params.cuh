// Parameters of the kernels, filled in by adam_gpu.cc, and arithmetic that the CPU shares.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace adam {

inline constexpr int kThreads = 256;  // threads per block
inline constexpr int kItems = 4;      // consecutive elements per thread
inline constexpr int kChunk = kThreads * kItems;
// Tensors per launch: the parameters of a launch may take 4 KiB.
inline constexpr int kMaxTensors = 76;

// A number as a sum: `high` is its neighbour towards 0, and `low` the rest. One float has too few
// digits: with 0.999 as a float, averages of equal numbers drift by 1 in 60,000. Because `low` is
// not 0, an infinite number times both is infinite.
template <class T>
struct Factor {
  T high, low;
};

// Numbers that depend on the number of the step, t. With s = sqrt(1 - beta2^t):
struct Schedule {
  double rate;  // lr / (1 - beta1^t) * s, so that averages of squares need not be divided by s * s
  double eps;   // eps * s
  double keep;  // factor of the weights: 1 - lr * weight_decay
};

OPDOCK_HOST_DEVICE double power(double base, long long exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 != 0) result *= base;
    base *= base;
  }
  return result;
}

// Returns the square root of a number from 0 to 1 by Newton's method, which converges from above.
// Device code has no square root of a double, and this way all devices give the same result.
OPDOCK_HOST_DEVICE double square_root(double number) {
  double root = 1;
  for (double next = (1 + number) / 2; next < root; next = (root + number / root) / 2) root = next;
  return root;
}

// t: the step's number, from 1 on.
OPDOCK_HOST_DEVICE Schedule make_schedule(double lr, double beta1, double beta2, double eps,
                                          double weight_decay, long long t) {
  const double root = square_root(1 - power(beta2, t));
  return {lr / (1 - power(beta1, t)) * root, eps * root, 1 - lr * weight_decay};
}

// The numbers of a step that the elements' update needs. They are in the call's workspace, written
// by begin().
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
  double weight_decay;  // decoupled decay of the weights
};

// Arrays have elements of the kernel's type T, except those named in Params::is_float, which have
// floats.
enum FloatArrays { kFloatWeights = 1, kFloatGrads = 2, kFloatAverages = 4 };

// The tensors of one launch. None is empty.
struct Params {
  void* weight[kMaxTensors];  // the tensors to update: the parameters, or their masters
  const void* grad[kMaxTensors];
  void* average[kMaxTensors];  // average of gradients
  void* square[kMaxTensors];   // average of squared gradients
  void* copy[kMaxTensors];     // parameters that have masters
  long long numel[kMaxTensors];
  int end[kMaxTensors];  // end of each tensor's blocks, ascending
  int count;             // at least 1
  const Current* current;
  Factor<float> beta1, beta2;
  float rest1, rest2;      // 1 - beta1, 1 - beta2
  float weight_decay;      // weight decay that is added to gradients
  float sign;              // -1 to maximise
  unsigned char is_float;  // FloatArrays
  bool has_copies;
  bool is_scaled;  // whether there is a grad_scale
};
static_assert(sizeof(Params) <= 4096);

}  // namespace adam
