// Parameters of the kernels, filled in by groups_gpu.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "codes.cuh"
#include "opdock/philox.cuh"

namespace fp_quantizer {

inline constexpr int kThreads = 256;   // threads per block
inline constexpr int kElements = 8;    // elements of a vector, whose codes are whole bytes
inline constexpr int kHeld = 2;        // vectors that a thread has in registers
inline constexpr int kScaleBytes = 4;  // the scale of a group, a float

// Codes are moved in units of so many bytes where their addresses allow it.
OPDOCK_HOST_DEVICE constexpr int code_unit(int bits) {
  return bits == 6 ? 2 : 4;
}

struct QuantizeParams {
  const void* x;
  unsigned char* q;
  long long groups;
  long long group;  // elements of a group
  long long row;    // bytes of a group: its codes and its scale
  Codes codes;
  int lane_bits;      // binary logarithm of the threads of a group
  int is_aligned;     // whether each group of x is whole vectors, at multiples of 16 bytes
  int has_units;      // whether codes may be moved in units
  int is_stochastic;  // whether `random` rounds
  opdock::RandomSource random;
};

struct DequantizeParams {
  const unsigned char* codes_at;   // the first group's codes
  const unsigned char* scales_at;  // the first group's scale
  const int* index;                // null: all groups, in order
  void* out;
  long long groups;        // of `out`
  long long group;         // elements of a group
  long long code_stride;   // bytes from a group's codes to the next one's
  long long scale_stride;  // bytes from a group's scale to the next one's
  long long of_index;      // groups that an element of `index` stands for
  long long indexed;       // the elements of `index` are below this number
  Codes codes;
  int lane_bits;
  int is_aligned;  // whether each group of `out` is whole vectors, at multiples of 16 bytes
  int has_units;   // whether codes may be moved in units
  int has_floats;  // whether scales lie at multiples of 4 bytes
};

}  // namespace fp_quantizer
