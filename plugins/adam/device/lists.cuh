// Updates elements of lists of tensors: what the kernels of all optimizers share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lists_params.cuh"
#include "opdock/device.cuh"
#include "opdock/search.cuh"

namespace optimizer {

using namespace opdock;
using opdock::fma;
using opdock::sqrt;

OPDOCK_DEVICE Factor<float> factor_of(double value) {
  const float nearest = static_cast<float>(value);
  const float high = nearest != 0 ? bits_float(float_bits(nearest) - 1) : 0.0f;
  return {high, static_cast<float>(value - static_cast<double>(high))};
}

// Four elements of one array as they lie in memory. They are converted to numbers only after all
// arrays' loads have been issued.
template <class T>
struct Array {
  bool is_float;  // elements are float, not T
  Bytes16 bits;

  static constexpr bool kNarrow = sizeof(T) < 4;

  OPDOCK_DEVICE bool is_narrow() const { return kNarrow && !is_float; }
  OPDOCK_DEVICE bool is_aligned(const void* array) const {
    return reinterpret_cast<uint64_t>(array) % (is_narrow() ? 8 : 16) == 0;
  }

  // Loads all four elements from an aligned array.
  OPDOCK_DEVICE void load(const void* array, int64_t first) {
    if (is_narrow()) {
      const Unit<8> both = load_unit<8>(static_cast<const T*>(array) + first);
      bits.word[0] = static_cast<uint32_t>(both);
      bits.word[1] = static_cast<uint32_t>(both >> 32);
    } else {
      bits = load16(static_cast<const float*>(array) + first);
    }
  }
  OPDOCK_DEVICE void store(void* array, int64_t first) const {
    if (is_narrow()) {
      store_unit<8>(static_cast<T*>(array) + first,
                    bits.word[0] | static_cast<uint64_t>(bits.word[1]) << 32);
    } else {
      store16(static_cast<float*>(array) + first, bits);
    }
  }

  // Loads the first `count` elements.
  OPDOCK_DEVICE void load_some(const void* array, int64_t first, int count) {
    OPDOCK_UNROLL
    for (int k = 0; k < kItems; ++k) {
      if (k >= count) {
        put(k, 0.0f);
      } else if (is_narrow()) {
        set(k, static_cast<const T*>(array)[first + k]);
      } else {
        bits.word[k] = float_bits(static_cast<const float*>(array)[first + k]);
      }
    }
  }
  OPDOCK_DEVICE void store_some(void* array, int64_t first, int count) const {
    OPDOCK_UNROLL
    for (int k = 0; k < kItems; ++k) {
      if (k < count && is_narrow()) static_cast<T*>(array)[first + k] = narrow(k);
      if (k < count && !is_narrow()) {
        static_cast<float*>(array)[first + k] = bits_float(bits.word[k]);
      }
    }
  }

  OPDOCK_DEVICE float get(int k) const {
    return is_narrow() ? to_float(narrow(k)) : bits_float(bits.word[k]);
  }
  OPDOCK_DEVICE void put(int k, float value) {
    if (is_narrow()) {
      set(k, from_float<T>(value));
    } else {
      bits.word[k] = float_bits(value);
    }
  }

 private:
  OPDOCK_DEVICE T narrow(int k) const {
    if constexpr (kNarrow) {
      return {static_cast<uint16_t>(bits.word[k / 2] >> 16 * (k % 2))};
    } else {
      return bits_float(bits.word[k]);
    }
  }
  OPDOCK_DEVICE void set(int k, T value) {
    if constexpr (kNarrow) {
      const int shift = 16 * (k % 2);
      bits.word[k / 2] =
          (bits.word[k / 2] & ~(0xffffu << shift)) | static_cast<uint32_t>(value.bits) << shift;
    } else {
      bits.word[k] = float_bits(value);
    }
  }
};

// Returns before * old + factor * value + more, rounded once to the size of `old`.
OPDOCK_DEVICE float blend(Factor<float> before, float old, float factor, float value,
                          float more = 0.0f) {
  return fma(before.high, old, fma(factor, value, fma(before.low, old, more)));
}

// Updates the thread's elements of tensor number `which`: `count` elements from number `first` on.
// is_float: as in TensorLists. rule: what the optimizer does with an element:
//
//   static constexpr bool kReadsGrads, kWritesStates, kWritesWeights;
//   static constexpr bool kAddsUp;  // step() must not be called for elements that are not there
//   bool begin();  // called after all loads were issued; false: nothing is to be changed
//   void step(float& weight, float grad, float (&state)[kStates]);
template <class T, class Lists, class Rule>
OPDOCK_DEVICE void update_some(const Lists& p, int is_float, int which, int64_t first, int count,
                               Rule& rule) {
  constexpr int kStates = Lists::kStates;
  Array<T> weights = {(is_float & kFloatWeights) != 0, {}};
  Array<T> grads = {(is_float & kFloatGrads) != 0, {}};
  Array<T> states[kStates], copies = {false, {}};
  void* const weight_at = p.weight[which];
  const void* const grad_at = p.grad[which];
  void* state_at[kStates];
  void* const copy_at = p.copy[which];
  // One branch for all arrays: loads behind separate branches are slower.
  bool is_whole = count == kItems && weights.is_aligned(weight_at) &&
                  (!Rule::kReadsGrads || grads.is_aligned(grad_at));
  OPDOCK_UNROLL
  for (int s = 0; s < kStates; ++s) {
    states[s].is_float = (is_float & kFloatStates) != 0;
    state_at[s] = p.state[s][which];
    is_whole = is_whole && states[s].is_aligned(state_at[s]);
  }
  if (Rule::kWritesWeights) is_whole = is_whole && (!p.has_copies || copies.is_aligned(copy_at));
  if (is_whole) {
    weights.load(weight_at, first);
    if (Rule::kReadsGrads) grads.load(grad_at, first);
    OPDOCK_UNROLL
    for (int s = 0; s < kStates; ++s) states[s].load(state_at[s], first);
  } else {
    weights.load_some(weight_at, first, count);
    if (Rule::kReadsGrads) grads.load_some(grad_at, first, count);
    OPDOCK_UNROLL
    for (int s = 0; s < kStates; ++s) states[s].load_some(state_at[s], first, count);
  }
  if (!rule.begin()) return;
  OPDOCK_UNROLL
  for (int k = 0; k < kItems; ++k) {
    if (Rule::kAddsUp && k >= count) continue;
    float weight = weights.get(k), state[kStates];
    OPDOCK_UNROLL
    for (int s = 0; s < kStates; ++s) state[s] = states[s].get(k);
    rule.step(weight, grads.get(k), state);
    weights.put(k, weight);
    OPDOCK_UNROLL
    for (int s = 0; s < kStates; ++s) states[s].put(k, state[s]);
    copies.put(k, weight);
  }
  if (is_whole) {
    if (Rule::kWritesWeights) weights.store(weight_at, first);
    OPDOCK_UNROLL
    for (int s = 0; s < kStates; ++s)
      if (Rule::kWritesStates) states[s].store(state_at[s], first);
    if (Rule::kWritesWeights && p.has_copies) copies.store(copy_at, first);
  } else {
    if (Rule::kWritesWeights) weights.store_some(weight_at, first, count);
    OPDOCK_UNROLL
    for (int s = 0; s < kStates; ++s)
      if (Rule::kWritesStates) states[s].store_some(state_at[s], first, count);
    if (Rule::kWritesWeights && p.has_copies) copies.store_some(copy_at, first, count);
  }
}

// Does so for the thread's elements of one piece of a tensor. A separate copy of the code is for
// the usual case with masters, because testing which arrays are float takes time.
template <class T, class Lists, class Rule>
OPDOCK_DEVICE void update_piece(const Lists& p, int which, int64_t first, Rule& rule) {
  const int64_t left = p.numel[which] - first;
  const int count = left < kItems ? static_cast<int>(left) : kItems;
  constexpr int kUsual = kFloatWeights | kFloatStates;
  if (left > 0 && sizeof(T) < sizeof(float) && p.is_float == kUsual) {
    update_some<T>(p, kUsual, which, first, count, rule);
  } else if (left > 0) {
    update_some<T>(p, p.is_float, which, first, count, rule);
  }
}

// The whole of a kernel in which each block updates kChunk elements. Launches may run at the same
// time, because each has its own tensors. Only the last block waits, so that work after the last
// launch follows all of them.
template <class T, class Lists, class Rule>
OPDOCK_DEVICE void update_lists(const Lists& p, Rule rule) {
  launch_dependents();
  const int64_t block = block_index();
  const int which = upper_bound(p.end, p.count, block);
  const int64_t begin = which == 0 ? 0 : p.end[which - 1];
  update_piece<T>(p, which, (block - begin) * kChunk + thread_index() * kItems, rule);
  if (block == grid_blocks() - 1) launch_wait();
}

}  // namespace optimizer
