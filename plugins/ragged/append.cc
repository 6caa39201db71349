// Implements append_blocks.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ragged.h"

namespace ragged {
namespace {

constexpr auto kAppend = OPDOCK_KERNEL_FAMILY("ragged::append", opdock::RowTypes);

void check_cache(Tensor k, Tensor cache) {
  check(cache, "cache").same_dtype_as(k, "k").ndim(5).size(2, 2).contiguous_last_dim().aligned();
  if (cache.size(4) > kMaxHead || cache.size(4) % 2 != 0 || cache.size(4) == 0)
    throw Error(OPDOCK_UNSUPPORTED, concat("argument 'cache': found heads of ", cache.size(4),
                                           " elements, wanted an even number up to ", kMaxHead,
                                           "; pass [blocks, block size, 2, heads, elements]"));
  if (cache.size(1) == 0)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                "argument 'cache': found blocks without places, wanted at least one place; pass "
                "[blocks, block size, 2, heads, elements]");
}

void check_rotation(Tensor k, Tensor cache, const OptionalTensor& q,
                    const OptionalTensor& frequencies) {
  if (!q && !frequencies) return;
  if (!q || !frequencies)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument '", q ? "frequencies" : "q", "': found None beside '",
                       q ? "q" : "frequencies", "', wanted both or none"));
  check(*q, "q").same_dtype_as(k, "k").ndim(2).size(0, k.size(0)).contiguous_last_dim().aligned();
  if (q->size(1) % cache.size(4) != 0)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'q': found ", q->size(1), " columns, wanted a multiple of ",
                       cache.size(4), ", the elements of a head in 'cache'; pass whole heads"));
  check(*frequencies, "frequencies").dtype(dtype_of<float>()).ndim(1).contiguous().aligned();
  if (2 * frequencies->size(0) > cache.size(4))
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'frequencies': found ", frequencies->size(0),
                       " numbers, wanted at most ", cache.size(4) / 2,
                       ", one for each pair of a head; pass those of the rotated pairs"));
}

void plan_append(Plan&, Tensor k, Tensor v, Tensor cache, Tensor batch, Tensor sequences,
                 Tensor token_sequences, Tensor block_lists, OptionalTensor q,
                 OptionalTensor frequencies) {
  check_element(k, "k");
  check(k, "k").ndim(2);
  check_cache(k, cache);
  check(k, "k").size(1, cache.size(3) * cache.size(4));
  check(v, "v").same_dtype_as(k, "k").same_shape_as(k, "k").contiguous_last_dim().aligned();
  check_batch(batch, sequences);
  check_tokens(token_sequences, k.size(0));
  check(block_lists, "block_lists").dtype(dtype_of<int32_t>(), dtype_of<int64_t>()).aligned();
  if (block_lists.dtype() == dtype_of<int64_t>())
    check(block_lists, "block_lists").shape({sequences.size(0)}).contiguous();
  else
    check(block_lists, "block_lists").ndim(2).size(0, sequences.size(0)).contiguous();
  check_rotation(k, cache, q, frequencies);
}

// Checks all places before anything is written, because q is rotated in place.
void check_places(const AppendParams& p) {
  if (p.batch.counts[0] > p.tokens)
    throw Error(OPDOCK_INVALID_ARGUMENT, concat("argument 'batch': found ", p.batch.counts[0],
                                                " tokens, wanted at most the ", p.tokens,
                                                " that there are; pass a batch's own description"));
  for (long long token = 0; token < p.batch.counts[0]; ++token) {
    const int sequence = p.batch.of_token[token];
    const long long position = p.batch.position(token, sequence);
    if (p.place(sequence, position) >= 0) continue;
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'block_lists': found no block of 'cache' for token ", token,
                       ", position ", position, " of sequence ", sequence, ", wanted one of the ",
                       p.count, "; reserve blocks for its tokens first"));
  }
}

template <class T>
void rotate(const T* from, T* to, const AppendParams& p, const float* cosines, const float* sines) {
  for (int i = 0; i < p.pairs; ++i) {
    const float a = static_cast<float>(from[i]), b = static_cast<float>(from[p.pairs + i]);
    to[i] = T(a * cosines[i] - b * sines[i]);
    to[p.pairs + i] = T(b * cosines[i] + a * sines[i]);
  }
}

template <class T>
void append_token(const AppendParams& p, int64_t token) {
  float cosines[kMaxPairs], sines[kMaxPairs];
  const int sequence = p.batch.of_token[token];
  const long long position = p.batch.position(token, sequence);
  const int turned = p.q ? 2 * p.pairs : 0;
  for (int i = 0; i < turned / 2; ++i) {
    const float angle = static_cast<float>(position) * p.frequencies[i];
    cosines[i] = std::cos(angle);
    sines[i] = std::sin(angle);
  }
  T* const to = static_cast<T*>(p.cache) + p.place(sequence, position);
  for (int64_t head = 0; turned > 0 && head < p.heads; ++head) {
    T* const q = static_cast<T*>(p.q) + token * p.q_row + head * p.size;
    rotate(q, q, p, cosines, sines);
  }
  for (int64_t head = 0; head < p.kv_heads; ++head) {
    const T* const k = static_cast<const T*>(p.k) + token * p.k_row + head * p.size;
    const T* const v = static_cast<const T*>(p.v) + token * p.v_row + head * p.size;
    T* const key = to + head * p.cache_head;
    if (turned > 0) rotate(k, key, p, cosines, sines);
    std::copy(k + turned, k + p.size, key + turned);
    std::copy(v, v + p.size, key + p.cache_kind);
  }
}

void run_append(Call& call, Results, Tensor k, Tensor v, Tensor cache, Tensor batch,
                Tensor sequences, Tensor token_sequences, Tensor block_lists, OptionalTensor q,
                OptionalTensor frequencies) {
  AppendParams p = {};
  p.batch = batch_of(batch, sequences, &token_sequences);
  p.blocks.lists = block_lists.raw();
  if (block_lists.dtype() == dtype_of<int32_t>()) {
    p.blocks.columns = block_lists.size(1);
    p.blocks.row = std::max<int64_t>(1, block_lists.size(1));
  }
  p.k = k.raw();
  p.v = v.raw();
  p.k_row = row_stride(k);
  p.v_row = row_stride(v);
  p.cache = cache.raw();
  p.tokens = k.size(0);
  p.count = cache.is_empty() ? 0 : cache.size(0);
  p.block_size = cache.size(1);
  p.kv_heads = static_cast<int>(cache.size(3));
  p.size = static_cast<int>(cache.size(4));
  const auto stride = [&](int32_t dim) { return cache.size(dim) == 1 ? 0 : cache.stride(dim); };
  p.cache_block = stride(0);
  p.cache_place = stride(1);
  p.cache_kind = cache.stride(2);
  p.cache_head = stride(3);
  Vectors vectors = Vectors(k).row(k).row(v).address(p.cache).elements(p.size);
  for (int32_t dim = 0; dim < 4; ++dim) vectors.elements(stride(dim));
  if (q && frequencies->size(0) > 0) {
    p.q = q->raw();
    p.q_row = row_stride(*q);
    p.heads = static_cast<int>(q->size(1) / p.size);
    p.frequencies = frequencies->data<float>();
    p.pairs = static_cast<int>(frequencies->size(0));
    vectors.row(*q).elements(p.pairs);
  }
  p.by_vectors = vectors.fit();
  if (p.tokens == 0) return;
  if (!call.is_cpu())
    return launch_blocks(call, kAppend(k.dtype()), p.tokens, kThreads, p, "tokens");
  check_places(p);
  for_type(k, "k", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t each = (p.heads + 2 * p.kv_heads) * p.size;
    call.parallel_for(p.batch.counts[0], std::max<int64_t>(1, kGrain / std::max<int64_t>(1, each)),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t t = begin; t < end; ++t) append_token<T>(p, t);
                      });
  });
}

}  // namespace
}  // namespace ragged

OPDOCK_OP(append_blocks, ragged::plan_append, nullptr, ragged::run_append)
