// Argument checks that both ops share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <opdock/op.hpp>

#include "device/append_params.cuh"
#include "device/attention_params.cuh"

namespace attention {

using namespace opdock::usual;

// Checks a tensor [batch, token, head, element], in which each head is contiguous.
inline void check_heads(Tensor x, const char* name) {
  check(x, name).ndim(4);
  opdock::check_rows(x, name);
}

// Returns whether keys lie by columns: the elements of one token are apart, and tokens are
// adjacent.
inline bool lies_by_columns(Tensor x) {
  return x.ndim() == 4 && x.size(3) > 1 && x.stride(3) != 1 && (x.size(1) <= 1 || x.stride(1) == 1);
}

inline void check_queries(const Plan& plan, Tensor q) {
  opdock::check_row_dtype(plan, q, "q");
  check(q, "q").ndim(4);
  if (q.size(3) < 1 || q.size(3) > kMaxSize)
    throw Error(OPDOCK_UNSUPPORTED, concat("argument 'q': found heads of ", q.size(3),
                                           " elements, shape ", q.shape_text(), ", wanted 1 to ",
                                           kMaxSize, "; pass [batch, tokens, heads, elements]"));
}

// Returns which kind of cache a tensor is, given q.
inline Cache cache_kind(Tensor q, Tensor cache, const char* name) {
  const auto float8 = opdock::Dtype(OPDOCK_DTYPE_FLOAT8_E4M3FN, 8);
  check(cache, name).dtype(q.dtype(), dtype_of<int8_t>(), float8);
  return cache.dtype() == q.dtype() ? kSame : cache.dtype() == float8 ? kFloat8 : kInt8;
}

inline void check_scale(const OptionalTensor& scale, const char* name, Cache kind, Tensor cache,
                        const char* cache_name) {
  if (kind == kSame && scale)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument '", name, "': found one beside '", cache_name, "' of ",
                       cache.dtype().name(), ", wanted none; leave it out"));
  if (kind != kSame && !scale)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument '", name, "': found None, wanted the scales of '", cache_name,
                       "', whose dtype is ", cache.dtype().name(),
                       ": float32, shape [batch, tokens, heads]; pass them"));
  if (!scale) return;
  check(*scale, name)
      .dtype(opdock::dtype_of<float>())
      .shape({cache.size(0), cache.size(1), cache.size(2)})
      .aligned(sizeof(float));
}

inline Heads heads_of(Tensor x) {
  const auto step = [&](int32_t dim) { return x.size(dim) == 1 ? 0 : x.stride(dim); };
  return {x.raw(), step(0), step(1), step(2)};
}
inline Scales scales_of(const OptionalTensor& x) {
  if (!x) return {};
  return {static_cast<float*>(x->raw()), x->stride(0), x->stride(1), x->stride(2)};
}

// Checks the limits of the kernels, which count in 32 bits, and of a grid, which has at most 65535
// blocks in two of its dimensions.
inline void check_counts(int64_t batch, int64_t tokens, int64_t places, int64_t heads) {
  constexpr int64_t kMax = 0x7fffffff;
  if (batch <= 0xffff && heads <= 0xffff && places <= kMax && tokens <= kMax / (2 * heads + 1))
    return;
  throw Error(OPDOCK_UNSUPPORTED,
              concat("found ", batch, " sequences of ", tokens, " tokens, ", heads, " heads and ",
                     places, " keys, wanted at most 65535 sequences, 65535 heads, 2^31 - 1 keys ",
                     "and heads of all tokens; pass a part of them at a time"));
}

}  // namespace attention
