// SPDX-License-Identifier: Apache-2.0
#include "attention_arguments.h"

#include <algorithm>
#include <cmath>

namespace attention {
namespace {

void check_added(const OptionalTensor& added, const char* name, const Arguments& of) {
  if (!added) return;
  check(*added, name).dtype(opdock::dtype_of<float>(), of.q.dtype()).ndim(4).aligned();
  const int64_t sizes[] = {of.q.size(0), of.q.size(2), of.q.size(1), of.k.size(1)};
  for (int32_t dim = 0; dim < 4; ++dim)
    if (added->size(dim) != 1) check(*added, name).size(dim, sizes[dim]);
}

Added added_of(const OptionalTensor& x, Tensor q) {
  if (!x) return {};
  const auto step = [&](int32_t dim) { return x->size(dim) == 1 ? 0 : x->stride(dim); };
  return {x->raw(), step(0), step(1), step(2), step(3), x->dtype() != q.dtype()};
}

Dropout dropout_of(const DropArguments& of, int64_t keys) {
  Dropout drop = {};
  drop.is_on = 1;
  long long* const seed = of.seed ? static_cast<long long*>(of.seed->raw()) : nullptr;
  if (of.generator) {
    drop.random = opdock::random_source(*of.generator);
    drop.new_state = seed;
  } else {
    drop.state = seed;
  }
  const double least = std::ceil(std::ldexp(of.probability, 32));
  drop.keeps_none = least > 4294967295.0;
  drop.least = drop.keeps_none ? 0 : static_cast<unsigned int>(least);
  drop.wide_factor = drop.keeps_none ? 0 : 1 / (1 - of.probability);
  drop.factor = static_cast<float>(drop.wide_factor);
  drop.row_blocks = (keys + 15) / 16 * 4;
  return drop;
}

}  // namespace

uint64_t random_numbers_of(const Arguments& of) {
  const int64_t rows = of.q.numel() / of.q.size(3);
  // Whole blocks: the first may begin within one.
  return static_cast<uint64_t>(rows * ((of.k.size(1) + 15) / 16 * 16) + 3);
}

void check_arguments(const Plan& plan, const Arguments& of) {
  check_queries(plan, of.q);
  const int64_t batch = of.q.size(0), size = of.q.size(3);
  const Cache kind = cache_kind(of.q, of.k, "k");
  if (kind == kSame && lies_by_columns(of.k))
    check(of.k, "k").ndim(4).aligned();
  else
    check_heads(of.k, "k");
  check(of.k, "k").size(0, batch).size(3, size);
  check(of.v, "v").same_dtype_as(of.k, "k").same_shape_as(of.k, "k");
  const int64_t heads = of.q.size(2), kv_heads = of.k.size(2);
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'k': found ", kv_heads, " heads, shape ", of.k.shape_text(),
                       ", wanted a divisor of the ", heads,
                       " heads of 'q'; pass "
                       "[batch, tokens, heads, elements]"));
  check_counts(batch, of.q.size(1), of.k.size(1), heads);
  check_scale(of.k_scale, "k_scale", kind, of.k, "k");
  check_scale(of.v_scale, "v_scale", kind, of.v, "v");
  if (of.lengths)
    check(*of.lengths, "lengths")
        .dtype(opdock::dtype_of<int32_t>())
        .shape({batch})
        .contiguous()
        .aligned(sizeof(int32_t));
  check_added(of.mask, "mask", of);
  check_added(of.bias, "bias", of);
  if (of.slopes)
    check(*of.slopes, "slopes")
        .dtype(opdock::dtype_of<float>())
        .shape({heads})
        .contiguous()
        .aligned(sizeof(float));
  if (of.scale && !std::isfinite(*of.scale))
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'scale': found ", *of.scale, ", wanted a finite number"));
  if (of.window < 0 || (of.window > 0 && !of.causal))
    throw Error(
        OPDOCK_INVALID_ARGUMENT,
        concat("argument 'window': found ", of.window,
               of.window < 0 ? ", wanted 0 or how many keys a query sees"
                             : " without causal, wanted causal=True beside it: a window ends "
                               "at the query's position"));
}

double scale_of(const Arguments& of) {
  return of.scale.value_or(1 / std::sqrt(static_cast<double>(of.q.size(3))));
}

Heads heads_of(Tensor x, const Arguments& of) {
  Heads heads = heads_of(x);
  if (of.q_starts) heads.batch = heads.token;
  return heads;
}

RowNumbers row_numbers_of(Tensor x, const Arguments& of) {
  RowNumbers numbers = {x.raw(), x.stride(0), x.stride(1), x.stride(2), x.dtype().bytes() == 8};
  if (of.q_starts) numbers.batch = numbers.query;
  return numbers;
}

Params make_params(const Arguments& of) {
  Params p = {};
  p.q = heads_of(of.q, of);
  p.k = heads_of(of.k, of);
  p.v = heads_of(of.v, of);
  if (of.q_starts) {
    p.q_starts = static_cast<const int*>(of.q_starts->raw());
    p.k_starts = static_cast<const int*>(of.k_starts->raw());
    p.sequences = static_cast<int>(of.q_starts->size(0));
  }
  p.key_element = lies_by_columns(of.k) ? of.k.stride(3) : 1;
  p.mask = added_of(of.mask, of.q);
  p.bias = added_of(of.bias, of.q);
  if (of.slopes) p.slopes = static_cast<const float*>(of.slopes->raw());
  p.k_scale = scales_of(of.k_scale);
  p.v_scale = scales_of(of.v_scale);
  if (of.lengths) p.lengths = static_cast<const int*>(of.lengths->raw());
  p.queries = static_cast<int>(of.q.size(1));
  p.keys = static_cast<int>(of.k.size(1));
  p.heads = static_cast<int>(of.q.size(2));
  p.group = of.k.size(2) > 0 ? static_cast<int>(of.q.size(2) / of.k.size(2)) : 1;
  p.size = static_cast<int>(of.q.size(3));
  p.cache = of.k.dtype() == of.q.dtype()                 ? kSame
            : of.k.dtype() == opdock::dtype_of<int8_t>() ? kInt8
                                                         : kFloat8;
  if (of.drop) p.drop = dropout_of(*of.drop, p.keys);
  p.scale = static_cast<float>(scale_of(of));
  p.causal = of.causal;
  p.window = static_cast<int>(std::min<int64_t>(of.window, 0x7fffffff));
  return p;
}

// Throws an Error for starts that do not begin with 0, fall, or exceed `total`.
static void check_starts(const int* starts, int count, int total, const char* name) {
  for (int s = 0; s < count; ++s) {
    const int least = s == 0 ? 0 : starts[s - 1], most = s == 0 ? 0 : total;
    if (starts[s] >= least && starts[s] <= most) continue;
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument '", name, "': found ", starts[s], " at place ", s, ", wanted ",
                       least, least == most ? "" : concat(" to ", most),
                       ": where each sequence begins, and the last one ends"));
  }
}

void check_lengths(const Params& p, int64_t batch) {
  check_starts(p.q_starts, p.sequences, p.queries, "cu_seqlens_q");
  check_starts(p.k_starts, p.sequences, p.keys, "cu_seqlens_k");
  for (int64_t b = 0; p.lengths && b < batch; ++b) {
    if (p.lengths[b] >= 0 && p.lengths[b] <= p.keys) continue;
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'lengths': found ", p.lengths[b], " for row ", b, ", wanted 0 to ",
                       p.keys, ", the keys that there are"));
  }
}

}  // namespace attention
