// Passes of attention over sequences that lie one behind the other, on the CPU.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "attention_passes.h"

namespace attention {
namespace {

// Where a sequence lies among the tokens.
struct Range {
  int query, queries, key, keys;
  bool is_rest;  // behind all sequences: its queries see no key

  Range(const Params& p, int s)
      : query(p.q_starts[s]), key(p.k_starts[s]), is_rest(s + 1 == p.sequences) {
    queries = (is_rest ? p.queries : p.q_starts[s + 1]) - query;
    keys = (is_rest ? p.keys : p.k_starts[s + 1]) - key;
  }
};

void advance(Heads* heads, int64_t tokens, int64_t bytes) {
  if (heads->data) heads->data = static_cast<char*>(heads->data) + tokens * heads->token * bytes;
}
void advance(RowNumbers* numbers, int64_t queries) {
  if (numbers->data)
    numbers->data =
        static_cast<char*>(numbers->data) + queries * numbers->query * (numbers->wide ? 8 : 4);
}

// Returns the parameters of a sequence as of a batch.
Params params_of(const Params& from, const Range& range, int64_t bytes) {
  static const int kNone = 0;
  Params p = from;
  for (Heads* queries : {&p.q, &p.out}) advance(queries, range.query, bytes);
  for (Heads* keys : {&p.k, &p.v}) advance(keys, range.key, bytes);
  advance(&p.lse, range.query);
  p.sequences = 0;
  p.queries = range.queries;
  p.keys = range.keys;
  if (range.is_rest) p.lengths = &kNone;
  return p;
}

BackwardJob job_of(const BackwardParams& from, const Range& range, opdock_dtype dtype,
                   double scale) {
  const int64_t bytes = dtype.bits / 8;
  BackwardParams b = from;
  b.p = params_of(from.p, range, bytes);
  for (Heads* queries : {&b.grad, &b.result, &b.grad_q}) advance(queries, range.query, bytes);
  for (Heads* keys : {&b.grad_k, &b.grad_v}) advance(keys, range.key, bytes);
  advance(&b.lse, range.query);
  advance(&b.grad_lse, range.query);
  b.rows = static_cast<double*>(b.rows) + int64_t{2} * b.p.heads * range.query;
  return {dtype, b, scale, units_of(int64_t{b.p.queries} * b.p.group), units_of(b.p.keys)};
}

// Calls body(range of a sequence, begin, end) for all units of work of all sequences, on the host's
// threads. units(range): how many units a sequence has.
template <class Units, class Body>
void for_sequences(opdock::Call& call, const Params& p, int64_t grain, const Units& units,
                   const Body& body) {
  std::vector<int64_t> first(static_cast<size_t>(p.sequences) + 1);
  for (int s = 0; s < p.sequences; ++s)
    first[static_cast<size_t>(s) + 1] = first[static_cast<size_t>(s)] + units(Range(p, s));
  call.parallel_for(first.back(), grain, [&](int64_t begin, int64_t end) {
    auto next = std::upper_bound(first.begin(), first.end(), begin);
    for (; begin < end; ++next) {
      const int64_t from = *(next - 1), stop = std::min(end, *next);
      if (begin < stop)
        body(Range(p, static_cast<int>(next - first.begin()) - 1), begin - from, stop - from);
      begin = std::max(begin, stop);
    }
  });
}

}  // namespace

void attend_sequences(opdock::Call& call, opdock_dtype dtype, const Params& p, double scale,
                      void (*attend)(const Job&, int64_t, int64_t)) {
  const auto row_units = [&](const Range& range) {
    return units_of(int64_t{range.queries} * p.group);
  };
  // A piece of the work is of about one sequence's size in any case; waking a second thread pays
  // off for about ten microseconds of work.
  const int64_t keys = p.keys / p.sequences + 1;
  for_sequences(
      call, p, std::max<int64_t>(1, 65536 / (kUnitRows * keys * p.size)),
      [&](const Range& range) { return int64_t{p.heads / p.group} * row_units(range); },
      [&](const Range& range, int64_t begin, int64_t end) {
        attend({dtype, params_of(p, range, dtype.bits / 8), scale, row_units(range)}, begin, end);
      });
}

void differentiate_sequences(opdock::Call& call, opdock_dtype dtype, const BackwardParams& b,
                             double scale, void (*queries)(const BackwardJob&, int64_t, int64_t),
                             void (*keys)(const BackwardJob&, int64_t, int64_t)) {
  const Params& p = b.p;
  const int64_t kv_heads = p.heads / p.group;
  const auto grain = [&](int64_t others) {
    return std::max<int64_t>(1, 16384 / (kUnitRows * (others / p.sequences + 1) * p.size));
  };
  for_sequences(
      call, p, grain(p.keys),
      [&](const Range& range) { return kv_heads * units_of(int64_t{range.queries} * p.group); },
      [&](const Range& range, int64_t begin, int64_t end) {
        queries(job_of(b, range, dtype, scale), begin, end);
      });
  for_sequences(
      call, p, grain(int64_t{p.queries} * p.group),
      [&](const Range& range) { return kv_heads * units_of(range.keys); },
      [&](const Range& range, int64_t begin, int64_t end) {
        keys(job_of(b, range, dtype, scale), begin, end);
      });
}

}  // namespace attention
