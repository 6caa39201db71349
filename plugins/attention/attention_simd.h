// Heads as floats or doubles, their products and their scores: shared by the CPU kernels of
// attention and of its gradients, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/simd.hpp"
//
#include <type_traits>

#include "attention_cpu.h"
#include "opdock/simd_exp.hpp"
#include "opdock/simd_row.hpp"

namespace attention {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

constexpr int kKeys = 32;
template <class C>
constexpr C kNegativeInfinity = static_cast<C>(-HUGE_VAL);

// Loads one head's elements as C, padded with zeros to whole vectors. scale: multiplies 8-bit
// elements. step: distance between elements, 1 for 8-bit ones.
template <class T, class C>
HWY_INLINE void load_head(const void* data, int64_t at, int size, int kind, C scale, C* to,
                          int64_t step = 1) {
  if (kind == kSame) {
    const T* const from = static_cast<const T*>(data) + at;
    if (step != 1) {
      T one[kMaxSize];
      for (int i = 0; i < size; ++i) one[i] = from[i * step];
      return load_head<T>(one, 0, size, kind, scale, to);
    }
    simd::for_row<C>(size, [&](const auto& vector, auto, int64_t i) HWY_ATTR {
      hn::StoreU(vector.load(from + i), simd::FullTag<C>(), to + i);
    });
    return;
  }
  const auto* const from = static_cast<const unsigned char*>(data) + at;
  const int lanes = static_cast<int>(hn::Lanes(simd::FullTag<C>()));
  for (int i = 0; i < (size + lanes - 1) / lanes * lanes; ++i) {
    const C value = i >= size       ? C{0}
                    : kind == kInt8 ? static_cast<C>(static_cast<signed char>(from[i]))
                                    : static_cast<C>(float8_value(from[i]));
    to[i] = value * scale;
  }
}

template <class C>
HWY_INLINE C dot(const C* a, const C* b, int64_t size) {
  simd::RowSum<C> sum;
  const simd::FullTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = (size + lanes - 1) / lanes * lanes;
  simd::for_row<C>(whole, [&](const auto&, auto slot, int64_t i) HWY_ATTR {
    sum.add_product(slot, hn::LoadU(d, a + i), hn::LoadU(d, b + i));
  });
  return static_cast<C>(sum.total());
}

// Stands for all types of elements that are computed as C: the gradients are compiled for it, and
// look at the dtype where they load and store.
template <class C>
struct AnyElement {};

template <class T>
struct ComputeHeads : simd::Compute<T> {};
template <class C>
struct ComputeHeads<AnyElement<C>> {
  using type = C;
};

// Calls body(T{}) with the type of elements of `dtype`, one that is computed as C.
template <class C, class Body>
HWY_INLINE auto with_element(opdock_dtype dtype, const Body& body) {
  if constexpr (sizeof(C) == 8) {
    return body(double{});
  } else {
    if (dtype.bits == 32) return body(float{});
    return dtype.code == OPDOCK_DTYPE_BFLOAT ? body(simd::BFloat16{}) : body(simd::Half{});
  }
}

// Rows that share the keys of a batch and head: row `query * p.group + head of the group`.
template <class T>
struct SharedRows {
  using C = typename ComputeHeads<T>::type;
  using D = simd::FullTag<C>;
  const Params& p;
  const opdock_dtype dtype;
  const C scale;
  int64_t batch, head;
  int length;

  // of_batch: number batch * heads of keys + head of keys.
  SharedRows(const Params& params, opdock_dtype of_dtype, double of_scale, int64_t of_batch)
      : p(params), dtype(of_dtype), scale(static_cast<C>(of_scale)) {
    const int64_t kv_heads = p.heads / p.group;
    batch = of_batch / kv_heads;
    head = of_batch % kv_heads;
    length = p.length(batch);
  }
  int64_t query(int64_t row) const { return row / p.group; }
  int64_t head_of(int64_t row) const { return head * p.group + row % p.group; }
  int position(int64_t row) const { return p.position(length, static_cast<int>(query(row))); }

  // Returns what the weight of a row and a key is multiplied by.
  C keep_factor(int64_t row, int64_t key) const {
    if (!p.drop.is_on) return 1;
    const int64_t number = (batch * p.heads + head_of(row)) * p.queries + query(row);
    const int64_t block = number * p.drop.row_blocks + Dropout::block_of(static_cast<int>(key));
    const opdock::PhiloxWords words = opdock::random_block(
        p.drop.seed(), p.drop.first_block() + static_cast<unsigned long long>(block));
    return p.drop.keeps(words.word[Dropout::word_of(static_cast<int>(key))])
               ? static_cast<C>(p.drop.wide_factor)
               : C{0};
  }
  // Returns the score of a row and a key from the product of the two.
  HWY_INLINE C score(int64_t row, int64_t key, C product) const {
    C sum = product * scale + added(p.mask, row, key) + added(p.bias, row, key);
    if (p.slopes)
      sum += static_cast<C>(p.slopes[head_of(row)]) * static_cast<C>(key - position(row));
    return sum;
  }

 private:
  C added(const Added& of, int64_t row, int64_t key) const {
    if (!of.data) return 0;
    const int64_t at =
        batch * of.batch + head_of(row) * of.head + query(row) * of.query + key * of.key;
    if (of.wide) return static_cast<C>(static_cast<const float*>(of.data)[at]);
    const auto element = [&](auto zero) HWY_ATTR {
      const hn::CappedTag<C, 1> one;
      return hn::GetLane(simd::load(one, static_cast<const decltype(zero)*>(of.data) + at));
    };
    if constexpr (std::is_same_v<T, AnyElement<C>>)
      return with_element<C>(dtype, element);
    else
      return element(T{});
  }
};

// Replaces scores, of which there are kKeys, by e^(score - reduce).
template <class C>
HWY_INLINE void make_weights(C* scores, C reduce) {
  const simd::FullTag<C> d;
  const auto by = hn::Set(d, static_cast<C>(1 / static_cast<double>(simd::kExpFactor<C>)));
  const auto less = hn::Set(d, reduce);
  for (int i = 0; i < kKeys; i += static_cast<int>(hn::Lanes(d)))
    hn::StoreU(hn::Mul(simd::exp_times(d, hn::Sub(hn::LoadU(d, scores + i), less)), by), d,
               scores + i);
}

// Adds by * from to `to`, both of `size` elements and rounded up to whole vectors.
template <class C>
HWY_INLINE void add_head(C by, const C* from, int size, C* to) {
  const simd::FullTag<C> d;
  const auto factor = hn::Set(d, by);
  for (int i = 0; i < size; i += static_cast<int>(hn::Lanes(d)))
    hn::StoreU(hn::MulAdd(factor, hn::LoadU(d, from + i), hn::LoadU(d, to + i)), d, to + i);
}

// Writes a head's elements, multiplied by factor. step: the distance between elements.
template <class T, class C>
HWY_INLINE void store_head(const C* from, C factor, int size, T* to, int64_t step = 1) {
  T one[kMaxSize];
  T* const at = step == 1 ? to : one;
  simd::for_row<C>(size, [&](const auto& vector, auto, int64_t i) HWY_ATTR {
    const simd::FullTag<C> d;
    vector.store(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, factor)), at + i);
  });
  for (int i = 0; step != 1 && i < size; ++i) to[i * step] = one[i];
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace attention
