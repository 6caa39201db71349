// Implements append_kv: checks its arguments and hands the tokens to the kernels.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "attention_checks.h"
#include "attention_cpu.h"
#include "attention_launch.h"

namespace attention {
namespace {

constexpr auto kAppend = OPDOCK_KERNEL_FAMILY("attention::append", opdock::RowTypes);
constexpr auto kPieces = OPDOCK_KERNEL_FAMILY("attention::append_pieces", opdock::RowTypes);

void check_cache(Tensor cache, const char* name, Tensor q, Tensor k) {
  check(cache, name).ndim(4).size(0, k.size(0)).size(2, k.size(2)).size(3, q.size(3));
}

void check_tables(Tensor q, const OptionalTensor& cos, const OptionalTensor& sin) {
  if (!cos && !sin) return;
  if (!cos || !sin)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument '", cos ? "sin" : "cos", "': found None beside the other table, ",
                       "wanted both or none"));
  check(*cos, "cos").dtype(opdock::dtype_of<float>(), q.dtype()).ndim(2);
  if (2 * cos->size(1) > q.size(3))
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'cos': found ", cos->size(1), " angles in a row, wanted at most ",
                       q.size(3) / 2,
                       ", one for each pair of a head; of a table that has each "
                       "angle twice pass one of them"));
  check(*sin, "sin").same_dtype_as(*cos, "cos").same_shape_as(*cos, "cos");
}

void plan_append(Plan& plan, Tensor q, Tensor k, Tensor v, Tensor k_cache, Tensor v_cache,
                 Tensor start, OptionalTensor cos, OptionalTensor sin, OptionalTensor k_scale,
                 OptionalTensor v_scale, bool) {
  check_queries(plan, q);
  check(k, "k")
      .same_dtype_as(q, "q")
      .ndim(4)
      .size(0, q.size(0))
      .size(1, q.size(1))
      .size(3, q.size(3));
  check(v, "v").same_dtype_as(q, "q").same_shape_as(k, "k");
  const Cache kind = cache_kind(q, k_cache, "k_cache");
  check_cache(k_cache, "k_cache", q, k);
  check(v_cache, "v_cache").same_dtype_as(k_cache, "k_cache").same_shape_as(k_cache, "k_cache");
  check_cache(v_cache, "v_cache", q, k);
  check(start, "start")
      .dtype(opdock::dtype_of<int32_t>())
      .shape({q.size(0)})
      .contiguous()
      .aligned(sizeof(int32_t));
  check_tables(q, cos, sin);
  check_scale(k_scale, "k_scale", kind, k_cache, "k_cache");
  check_scale(v_scale, "v_scale", kind, v_cache, "v_cache");
  check_counts(q.size(0), q.size(1), k_cache.size(1), q.size(2) + k.size(2));
  plan.output(q.like());
}

void check_places(const AppendParams& p) {
  for (long long b = 0; b < p.batch; ++b) {
    for (const long long t : {0LL, p.tokens - 1}) {
      if (p.place(b, t) >= 0) continue;
      throw Error(OPDOCK_INVALID_ARGUMENT,
                  concat("argument 'start': found ", p.start[b], " for row ", b, " with ", p.tokens,
                         " new tokens, wanted places 0 to ",
                         (p.cos ? std::min(p.places, p.length) : p.places) - 1,
                         ", which the cache and the tables have; pass larger ones"));
    }
  }
}

// Returns whether the angles of each piece of 16 bytes are whole, aligned pieces of float tables.
bool rotates_pieces(const AppendParams& p, const OptionalTensor& cos, const OptionalTensor& sin,
                    int64_t piece) {
  if (!cos) return true;
  const auto is_aligned = [](Tensor table) {
    return reinterpret_cast<uintptr_t>(table.raw()) % 16 == 0 && table.stride(0) % 4 == 0;
  };
  return cos->dtype() == opdock::dtype_of<float>() && is_aligned(*cos) && is_aligned(*sin) &&
         (p.interleaved ? p.rotated : p.rotated / 2) % piece == 0;
}

void run_append(Call& call, Results results, Tensor q, Tensor k, Tensor v, Tensor k_cache,
                Tensor v_cache, Tensor start, OptionalTensor cos, OptionalTensor sin,
                OptionalTensor k_scale, OptionalTensor v_scale, bool interleaved) {
  const Tensor out = results[0];
  AppendParams p = {};
  p.q = heads_of(q);
  p.k = heads_of(k);
  p.v = heads_of(v);
  p.out = heads_of(out);
  p.k_cache = heads_of(k_cache);
  p.v_cache = heads_of(v_cache);
  p.k_scale = scales_of(k_scale);
  p.v_scale = scales_of(v_scale);
  p.start = static_cast<const int*>(start.raw());
  if (cos) {
    p.cos = cos->raw();
    p.sin = sin->raw();
    p.cos_row = cos->stride(0);
    p.sin_row = sin->stride(0);
    p.length = cos->size(0);
    p.narrow_tables = cos->dtype() == q.dtype();
    p.rotated = static_cast<int>(2 * cos->size(1));
  }
  p.interleaved = interleaved;
  p.batch = q.size(0);
  p.tokens = q.size(1);
  p.places = k_cache.size(1);
  p.heads = static_cast<int>(q.size(2));
  p.kv_heads = static_cast<int>(k.size(2));
  p.size = static_cast<int>(q.size(3));
  p.cache = k_cache.dtype() == q.dtype()                    ? kSame
            : k_cache.dtype() == opdock::dtype_of<int8_t>() ? kInt8
                                                            : kFloat8;
  const int64_t tokens = p.batch * p.tokens, each = p.heads + 2 * p.kv_heads;
  if (tokens == 0 || each == 0) return;
  if (!call.is_cpu()) {
    const int64_t piece = 16 / q.dtype().bytes();
    const int64_t parts = (each * (p.size / piece) + kAppendThreads - 1) / kAppendThreads;
    if (p.cache == kSame && tokens <= 0x7fffffff && parts <= 0xffff &&
        fits_vectors({q, k, v, k_cache, v_cache, out}) && rotates_pieces(p, cos, sin, piece)) {
      opdock::Launch how = {opdock::Dim3(tokens, parts), kAppendThreads};
      how.flags = opdock::detail::pdl_launch_flags(call, tokens * parts, kAppendThreads);
      return call.launch(kPieces(q.dtype()), how, p);
    }
    const int64_t warps = kAppendThreads / call.facts().warp_size;
    const int64_t blocks = (tokens * each + warps - 1) / warps;
    if (blocks > 0x7fffffff)
      throw Error(OPDOCK_UNSUPPORTED, concat("found ", tokens, " tokens with ", each,
                                             " heads, wanted fewer; pass a part of them"));
    return call.launch(kAppend(q.dtype()), {blocks, kAppendThreads}, p);
  }
  check_places(p);
  const AppendJob job = {q.dtype(), p};
  static const auto kernel = OPDOCK_SIMD_CHOOSE(append_tokens);
  call.parallel_for(tokens, std::max<int64_t>(1, 8192 / (each * p.size)),
                    [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
}

}  // namespace
}  // namespace attention

OPDOCK_OP(append_kv, attention::plan_append, nullptr, attention::run_append)
