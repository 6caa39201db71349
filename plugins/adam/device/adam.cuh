// Adam and AdamW over many tensors: one thread computes what depends on the step's number, then
// each block updates a chunk of a tensor.
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

// Updates the thread's elements of tensor number `which`: `count` elements from number `first` on.
// is_float: as in Params.
template <class T>
OPDOCK_DEVICE void update_some(const Params& p, int is_float, int which, int64_t first, int count) {
  Array<T> weights = {(is_float & kFloatWeights) != 0, {}};
  Array<T> grads = {(is_float & kFloatGrads) != 0, {}};
  Array<T> means = {(is_float & kFloatAverages) != 0, {}};
  Array<T> squares = means, copies = {false, {}};
  void* const weight_at = p.weight[which];
  const void* const grad_at = p.grad[which];
  void* const mean_at = p.average[which];
  void* const square_at = p.square[which];
  void* const copy_at = p.copy[which];
  // One branch for all arrays: loads behind separate branches are slower.
  const bool is_whole = count == kItems && weights.is_aligned(weight_at) &&
                        grads.is_aligned(grad_at) && means.is_aligned(mean_at) &&
                        squares.is_aligned(square_at) &&
                        (!p.has_copies || copies.is_aligned(copy_at));
  if (is_whole) {
    weights.load(weight_at, first);
    grads.load(grad_at, first);
    means.load(mean_at, first);
    squares.load(square_at, first);
  } else {
    weights.load_some(weight_at, first, count);
    grads.load_some(grad_at, first, count);
    means.load_some(mean_at, first, count);
    squares.load_some(square_at, first, count);
  }
  const Current now = *p.current;
  if (now.is_skipped != 0) return;
  OPDOCK_UNROLL
  for (int k = 0; k < kItems; ++k) {
    float weight = weights.get(k), mean = means.get(k), square = squares.get(k);
    step(p, now, weight, grads.get(k), mean, square);
    weights.put(k, weight);
    means.put(k, mean);
    squares.put(k, square);
    copies.put(k, weight);
  }
  if (is_whole) {
    weights.store(weight_at, first);
    means.store(mean_at, first);
    squares.store(square_at, first);
    if (p.has_copies) copies.store(copy_at, first);
  } else {
    weights.store_some(weight_at, first, count);
    means.store_some(mean_at, first, count);
    squares.store_some(square_at, first, count);
    if (p.has_copies) copies.store_some(copy_at, first, count);
  }
}

// Launches may run at the same time, because each has its own tensors. Only the last block waits,
// so that work after the last launch follows all of them.
template <class T>
OPDOCK_KERNEL(kThreads)
update(Params p) {
  launch_dependents();
  const int64_t block = block_index();
  const int which = upper_bound(p.end, p.count, block);
  const int64_t begin = which == 0 ? 0 : p.end[which - 1];
  const int64_t first = (block - begin) * kChunk + thread_index() * kItems;
  const int64_t left = p.numel[which] - first;
  const int count = left < kItems ? static_cast<int>(left) : kItems;
  // A separate copy of the code for the usual case with masters, because testing which arrays are
  // float takes time.
  constexpr int kUsual = kFloatWeights | kFloatAverages;
  if (left > 0 && sizeof(T) < sizeof(float) && p.is_float == kUsual) {
    update_some<T>(p, kUsual, which, first, count);
  } else if (left > 0) {
    update_some<T>(p, p.is_float, which, first, count);
  }
  if (block == grid_blocks() - 1) launch_wait();
}

}  // namespace adam
