// How a group of numbers becomes integers, and where the groups lie: shared by the kernels and the
// CPU's code, and filled in by quantizer.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace quantizer {

inline constexpr int kMostThreads = 512;    // threads of a block, at most
inline constexpr int kLeastThreads = 128;   // threads of a block, at least
inline constexpr int kVectors = 4;          // vectors that a thread dequantises
inline constexpr int kVectorThreads = 256;  // threads of a block that dequantises

// How numbers become integers.
struct Format {
  int bits;           // 4 or 8
  int is_symmetric;   // a group has no offset
  int scales_offset;  // the offset belongs to the scaled numbers, as in DeepSpeed 0.7.7
};

// An integer is (x - offset) * factor or, with Format::scales_offset, x * factor + offset.
struct Scale {
  float factor, offset;
};

// Returns the scale for a group's least and greatest number; NaN if the group has no number.
OPDOCK_HOST_DEVICE Scale make_scale(const Format& format, float least, float most) {
  constexpr float kMostFactor = 3.402823466e+38f;
  // Half of the range of integers. Halves of numbers are used below, because the difference and the
  // sum of two large numbers may be infinite.
  const float levels = format.bits == 8 ? 128.0f : 8.0f;
  if (!(least <= most)) least = most = 0.0f;
  Scale scale = {1.0f, 0.0f};
  if (format.is_symmetric) {
    const float reach = most > -least ? most : -least;
    if (reach != 0.0f) scale.factor = levels / reach;
  } else {
    if (most != least) scale.factor = levels / (0.5f * most - 0.5f * least);
    scale.offset = 0.5f * most + 0.5f * least;
  }
  if (scale.factor > kMostFactor) scale.factor = kMostFactor;
  return scale;
}

// The places of groups in the result. Each of nodes * devices partitions has `slices` slices of
// `run` groups; the result has the slices of all partitions in turn, those of one device of each
// node together.
struct Slots {
  unsigned int run;  // 0: each group stays where it is
  unsigned int slices, nodes, devices;

  OPDOCK_HOST_DEVICE long long slot_of(long long group) const {
    if (run == 0) return group;
    const unsigned int piece = static_cast<unsigned int>(group) / run;
    const unsigned int rest = static_cast<unsigned int>(group) - piece * run;
    const unsigned int partition = piece / slices, slice = piece - partition * slices;
    const unsigned int node = partition / devices, device = partition - node * devices;
    const unsigned int place = (slice * devices + device) * nodes + node;
    return static_cast<long long>(place) * run + rest;
  }
};

// Divides numbers from 0 to 2^63 - 1 by one number.
struct Divisor {
  long long divisor;
  unsigned long long factor;  // a product's high half, shifted, is the quotient, if divisor > 1
  int shift;
};

// Where integers are written, with the parameters of their groups.
struct Target {
  signed char* q;
  float* params;
  long long length, groups;  // elements of a group, and groups
  Format format;
  Slots slots;
  int aligned;    // q is aligned to as many bytes as a vector of eight integers has
  int team_bits;  // the binary logarithm of the threads of a group
};

struct QuantizeParams {
  const void* x;
  long long numel;
  Target to;
};

// Integers that are read: `tensors` tensors of `numel` elements, one after the other, each with
// `groups` groups.
struct Source {
  const signed char* q;
  const float* params;
  long long numel, groups;
  Divisor length;  // of a group
  int tensors;
  int is_symmetric;
  int even;     // no vector of eight has elements of two groups
  int aligned;  // each tensor is aligned to as many bytes as a vector of eight integers has
};

struct SumParams {
  Source from;
  Target to;
};

struct DequantizeParams {
  Source from;
  void* out;
  int scales_offset;
  int aligned;  // out is aligned to 16 bytes
};

// Integers without sign, divided by a scale and added to a least number, both float16.
struct UnsignedParams {
  const unsigned char* q;
  const unsigned short* scale;
  const unsigned short* least;
  unsigned short* out;
  long long numel;
  Divisor length;
  int even;
  int aligned;  // q to as many bytes as a vector of eight integers has, and out to 16
};

}  // namespace quantizer
