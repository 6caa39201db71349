// Adam and AdamW over many tensors: one thread computes what depends on the step, then each block
// updates a chunk of a tensor.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adam_params.cuh"
#include "opdock/device.cuh"
#include "opdock/search.cuh"

namespace adam {

using namespace opdock;
using opdock::fma;
using opdock::sqrt;

OPDOCK_DEVICE Factor<float> factor_of(double value) {
  const float nearest = static_cast<float>(value);
  const float high = nearest != 0 ? bits_float(float_bits(nearest) - 1) : 0.0f;
  return {high, static_cast<float>(value - static_cast<double>(high))};
}

// Counts the step, unless it is to be skipped. Launched with a single thread.
OPDOCK_KERNEL(1) begin(Begin p) {
  Current current = {};
  if (p.found_inf != nullptr && *p.found_inf != 0) {
    current.is_skipped = 1;
  } else {
    const float step = *p.step + 1;
    *p.step = step;
    const double lr = p.lr != nullptr ? static_cast<double>(*p.lr) : p.lr_number;
    const Schedule now =
        make_schedule(lr, p.beta1, p.beta2, p.eps, p.weight_decay, static_cast<int64_t>(step));
    current.rate = factor_of(now.rate);
    current.keep = factor_of(now.keep);
    current.eps = static_cast<float>(now.eps);
    current.scale = p.grad_scale != nullptr ? *p.grad_scale : 1.0f;
  }
  *p.current = current;
}

// Four elements of one array as they lie in memory. Bits are turned into numbers only when all
// arrays' loads are under way.
template <class T>
struct Array {
  bool is_float;  // elements of float, not T
  bool is_whole;  // all four are there and aligned
  Bytes16 bits;

  static constexpr bool kNarrow = sizeof(T) < 4;

  OPDOCK_DEVICE bool is_narrow() const { return kNarrow && !is_float; }

  OPDOCK_DEVICE void load(const void* from, int64_t first, int count) {
    if (is_narrow()) {
      const T* const elements = static_cast<const T*>(from) + first;
      if (is_whole) {
        const Unit<8> both = load_unit<8>(elements);
        bits.word[0] = static_cast<uint32_t>(both);
        bits.word[1] = static_cast<uint32_t>(both >> 32);
      } else {
        OPDOCK_UNROLL
        for (int k = 0; k < kItems; ++k) set(k, k < count ? elements[k] : from_float<T>(0.0f));
      }
    } else {
      const float* const elements = static_cast<const float*>(from) + first;
      if (is_whole) {
        bits = load16(elements);
      } else {
        OPDOCK_UNROLL
        for (int k = 0; k < kItems; ++k) bits.word[k] = k < count ? float_bits(elements[k]) : 0;
      }
    }
  }

  OPDOCK_DEVICE void store(void* to, int64_t first, int count) const {
    if (is_narrow()) {
      T* const elements = static_cast<T*>(to) + first;
      if (is_whole) {
        store_unit<8>(elements, bits.word[0] | static_cast<uint64_t>(bits.word[1]) << 32);
      } else {
        OPDOCK_UNROLL
        for (int k = 0; k < kItems; ++k)
          if (k < count) elements[k] = narrow(k);
      }
    } else {
      float* const elements = static_cast<float*>(to) + first;
      if (is_whole) {
        store16(elements, bits);
      } else {
        OPDOCK_UNROLL
        for (int k = 0; k < kItems; ++k)
          if (k < count) elements[k] = bits_float(bits.word[k]);
      }
    }
  }

  OPDOCK_DEVICE void get(float (&to)[kItems]) const {
    OPDOCK_UNROLL
    for (int k = 0; k < kItems; ++k)
      to[k] = is_narrow() ? to_float(narrow(k)) : bits_float(bits.word[k]);
  }
  OPDOCK_DEVICE void put(const float (&from)[kItems]) {
    OPDOCK_UNROLL
    for (int k = 0; k < kItems; ++k) {
      if (is_narrow()) {
        set(k, from_float<T>(from[k]));
      } else {
        bits.word[k] = float_bits(from[k]);
      }
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

// before * old + factor * value + more; rounded once as numbers of the size of `old` are.
OPDOCK_DEVICE float blend(Factor<float> before, float old, float factor, float value,
                          float more = 0.0f) {
  return fma(before.high, old, fma(factor, value, fma(before.low, old, more)));
}

OPDOCK_DEVICE void step(const Params& p, const Current& now, float& weight, float grad, float& mean,
                        float& square) {
  if (p.is_scaled) grad /= now.scale;
  grad *= p.sign;
  if (p.weight_decay != 0) grad = fma(p.weight_decay, weight, grad);
  mean = blend(p.beta1, mean, p.rest1, grad);
  square = blend(p.beta2, square, p.rest2 * grad, grad);
  const float change = mean / (sqrt(square) + now.eps);
  weight = blend(now.keep, weight, -now.rate.high, change, -now.rate.low * change);
}

OPDOCK_DEVICE bool is_aligned(const void* pointer, bool narrow) {
  return reinterpret_cast<uint64_t>(pointer) % (narrow ? 8 : 16) == 0;
}

// Launches may run at the same time: each has tensors of its own. Only the last block waits, so
// that what follows the last launch follows all.
template <class T>
OPDOCK_KERNEL(kThreads)
update(Params p) {
  launch_dependents();
  const int64_t block = block_index();
  const int which = upper_bound(p.end, p.count, block);
  const int64_t begin = which == 0 ? 0 : p.end[which - 1];
  const int64_t first = (block - begin) * kChunk + thread_index() * kItems;
  const int64_t left = p.numel[which] - first;
  if (left > 0) {
    const int count = left < kItems ? static_cast<int>(left) : kItems;
    const auto array = [&](const void* pointer, bool is_float) {
      Array<T> made;
      made.is_float = is_float;
      made.is_whole = count == kItems && is_aligned(pointer, made.is_narrow());
      return made;
    };
    Array<T> weights = array(p.weight[which], p.is_float & kFloatWeights);
    Array<T> grads = array(p.grad[which], p.is_float & kFloatGrads);
    Array<T> means = array(p.average[which], p.is_float & kFloatAverages);
    Array<T> squares = array(p.square[which], p.is_float & kFloatAverages);
    weights.load(p.weight[which], first, count);
    grads.load(p.grad[which], first, count);
    means.load(p.average[which], first, count);
    squares.load(p.square[which], first, count);
    const Current now = *p.current;
    if (now.is_skipped == 0) {
      float weight[kItems], grad[kItems], mean[kItems], square[kItems];
      weights.get(weight);
      grads.get(grad);
      means.get(mean);
      squares.get(square);
      OPDOCK_UNROLL
      for (int k = 0; k < kItems; ++k) step(p, now, weight[k], grad[k], mean[k], square[k]);
      weights.put(weight);
      means.put(mean);
      squares.put(square);
      weights.store(p.weight[which], first, count);
      means.store(p.average[which], first, count);
      squares.store(p.square[which], first, count);
      if (p.has_copies) {
        Array<T> copies = array(p.copy[which], false);
        copies.put(weight);
        copies.store(p.copy[which], first, count);
      }
    }
  }
  if (block == grid_blocks() - 1) launch_wait();
}

}  // namespace adam
