// Checks of arguments, and the launch of kernels over groups, which the ops share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <opdock/op.hpp>

#include "device/quantizer_params.cuh"

namespace quantizer {

using namespace opdock::usual;

using Types = KernelTypes<float, opdock::half, opdock::bfloat16>;

[[noreturn]] inline void fail(const char* name, const std::string& found, const char* wanted) {
  throw Error(OPDOCK_INVALID_ARGUMENT,
              concat("argument '", name, "': found ", found, ", wanted ", wanted));
}

inline void check_bits(int64_t bits) {
  if (bits != 4 && bits != 8) fail("bits", concat(bits), "4 or 8; pass one of them");
}

// Checks that numel elements are `groups` groups of equally many, of whole bytes.
inline void check_groups(int64_t groups, int64_t numel, int64_t bits, const char* name) {
  if (groups < 1) fail(name, concat(groups), "at least 1");
  if (numel % groups != 0)
    fail(name, concat(groups, " groups of ", numel, " elements"),
         "a number that divides the elements; pass a divisor, or pad them");
  if (bits == 4 && numel / groups % 2 != 0)
    fail(name, concat(groups, " groups of ", numel / groups, " elements"),
         "groups of an even number of elements for 4 bits, because a byte has two of them; pass "
         "another number of groups, or 8 bits");
}

inline uintptr_t address_of(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

inline Divisor make_divisor(int64_t divisor) {
  Divisor by = {divisor, 0, 0};
  if (divisor > 1) {
    opdock::Elements<1> elements = {};
    opdock::detail::set_divisor(&elements, static_cast<uint64_t>(divisor));
    by.factor = elements.factor;
    by.shift = elements.shift;
  }
  return by;
}

// Returns where integers are written. numel: elements, in as many groups as params has rows.
inline Target make_target(Tensor q, Tensor params, int64_t numel, const Format& format) {
  Target to = {};
  to.q = static_cast<signed char*>(q.raw());
  to.params = params.data<float>();
  to.groups = params.size(0);
  to.length = numel / to.groups;
  to.format = format;
  to.aligned = address_of(to.q) % static_cast<uintptr_t>(format.bits) == 0;
  return to;
}

// Returns whether kernels need no check of any vector of a group.
inline bool is_plain(const Target& to) {
  return to.aligned && to.length % 8 == 0 && to.length < 0x40000000;
}

// Returns what is read. q: `tensors` tensors, in as many groups as params has rows.
inline Source make_source(Tensor q, Tensor params, int64_t bits, int64_t tensors) {
  Source from = {};
  from.q = static_cast<const signed char*>(q.raw());
  from.params = params.data<const float>();
  from.numel = q.numel() * (8 / bits) / tensors;
  from.groups = params.size(0) / tensors;
  from.length = make_divisor(from.groups == 0 ? 1 : from.numel / from.groups);
  from.tensors = static_cast<int>(tensors);
  from.is_symmetric = params.size(1) == 1;
  from.even = from.length.divisor % 8 == 0;
  from.aligned = address_of(from.q) % static_cast<uintptr_t>(bits) == 0 &&
                 (tensors == 1 || from.numel % 8 == 0);
  return from;
}

// Checks the parameters of integers that are read.
inline void check_params(Tensor params, Tensor q) {
  check(params, "params").dtype(dtype_of<float>()).same_device_as(q, "q").ndim(2);
  if (params.size(1) != 1 && params.size(1) != 2)
    fail("params", concat("shape ", params.shape_text()),
         "[groups, 1] of symmetric or [groups, 2] of asymmetric groups; reshape it");
}

// Launches a kernel over the groups of `params->to`, each of whose threads holds up to `held`
// vectors.
template <class Params>
void launch_groups(const Call& call, uint32_t kernel, int64_t held, Params* params) {
  Target& to = params->to;
  // Short groups have more threads than they need, so that neighbouring threads read neighbouring
  // vectors: two vectors a thread are enough to keep the memory busy.
  const int64_t vectors = (to.length + 7) / 8, warp = call.facts().warp_size;
  const int64_t in_thread = vectors <= 2 * warp ? std::min<int64_t>(held, 2) : held;
  to.team_bits = std::min(opdock::detail::log2_of((vectors + in_thread - 1) / in_thread),
                          opdock::detail::log2_of(kMostThreads));
  const int64_t team = int64_t{1} << to.team_bits, threads = std::max<int64_t>(team, kLeastThreads);
  const int64_t teams = threads / team, blocks = (to.groups + teams - 1) / teams;
  constexpr int64_t kMostBlocks = int64_t{1} << 22;  // AMD's driver takes fewer than 2^32 threads
  opdock::Launch how = {
      opdock::Dim3(std::min(blocks, kMostBlocks), (blocks + kMostBlocks - 1) / kMostBlocks),
      threads};
  how.flags = opdock::detail::pdl_launch_flags(call, blocks, threads);
  call.launch(kernel, how, *params);
}

// ------------------------------------------------------------------------------------- on the CPU

// The scale of a group, and what is stored of it.
struct GroupScale {
  Scale scale;
  float step;
};

// Returns the scale of numbers between `least` and `most`, NaN if there is no number.
inline GroupScale scale_group(const Format& format, float least, float most) {
  GroupScale group = {make_scale(format, least, most), 0};
  group.step = 1.0f / group.scale.factor;
  if (format.scales_offset)
    group.scale.offset = std::fma(-(least <= most ? least : 0.0f), group.scale.factor,
                                  format.bits == 8 ? -128.0f : -8.0f);
  return group;
}

// Returns the nearest integer, ties to even, of the format's range; 0 of NaN.
inline int integer_of(const Format& format, const Scale& scale, float x) {
  const float levels = format.bits == 8 ? 128.0f : 8.0f;
  float y = format.scales_offset ? std::fma(x, scale.factor, scale.offset)
                                 : (x - scale.offset) * scale.factor;
  if (!(y == y)) return 0;
  y = std::min(std::max(y, -levels), levels - 1.0f);
  return static_cast<int>(std::nearbyint(y));
}

struct Extremes {
  float least, most;
};

// Returns the least and the greatest of some numbers, both NaN if all are.
template <class X>
Extremes find_extremes(const X* x, int64_t count) {
  Extremes found = {NAN, NAN};
  for (int64_t i = 0; i < count; ++i) {
    const float value = x[i];
    if (!(found.least <= value)) found.least = value == value ? value : found.least;
    if (!(found.most >= value)) found.most = value == value ? value : found.most;
  }
  return found;
}

// Quantises the numbers x[0] … x[length - 1] of a group into a slot of the target.
template <class X>
void quantize_group(const Target& to, int64_t slot, const X* x) {
  const Extremes extremes = find_extremes(x, to.length);
  const GroupScale group = scale_group(to.format, extremes.least, extremes.most);
  const auto integer = [&](int64_t i) { return integer_of(to.format, group.scale, x[i]); };
  if (to.format.bits == 8) {
    signed char* const q = to.q + slot * to.length;
    for (int64_t i = 0; i < to.length; ++i) q[i] = static_cast<signed char>(integer(i));
  } else {
    signed char* const q = to.q + slot * to.length / 2;
    for (int64_t i = 0; i < to.length; i += 2)
      q[i / 2] = static_cast<signed char>(integer(i) * 16 + (integer(i + 1) & 15));
  }
  const int64_t at = to.format.is_symmetric ? slot : 2 * slot;
  to.params[at] = group.step;
  if (!to.format.is_symmetric) to.params[at + 1] = group.scale.offset;
}

// Returns element i of integers of 4 or 8 bits.
inline int signed_number(const signed char* q, int64_t i, int64_t bits) {
  if (bits == 8) return q[i];
  const int byte = static_cast<unsigned char>(q[i / 2]);
  return ((i % 2 == 0 ? byte >> 4 : byte & 15) ^ 8) - 8;
}

// Elements that are worth waking a CPU thread for: about ten microseconds of work.
constexpr int64_t kGrain = 4096;

// Calls body(group) for each group, on the host's threads.
template <class Body>
void for_groups(const Call& call, int64_t groups, int64_t length, const Body& body) {
  call.parallel_for(groups, std::max<int64_t>(1, kGrain / (length + 1)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t group = begin; group < end; ++group) body(group);
                    });
}

}  // namespace quantizer
