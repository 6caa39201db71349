// Mixture of experts: which experts each token goes to, and its rows to and from them. The order of
// an expert's tokens is theirs in the batch, so that results are the same each time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rows.cuh"

namespace ragged {

// A candidate among the experts of a token. NaN counts as infinite.
struct Candidate {
  float value;
  int index;

  OPDOCK_DEVICE bool is_before(const Candidate& other) const {
    return value > other.value || (value == other.value && index < other.index);
  }
};

// The best of all lanes' candidates, in every lane.
OPDOCK_DEVICE Candidate best_of_warp(Candidate own) {
  OPDOCK_UNROLL
  for (int mask = warp_width() / 2; mask > 0; mask /= 2) {
    const Candidate other = {shuffle_xor(own.value, mask), shuffle_xor(own.index, mask)};
    if (other.is_before(own)) own = other;
  }
  return own;
}

// A warp finds the experts of a token: the k largest logits, of equal ones the first.
template <class T>
OPDOCK_KERNEL(kRouteThreads)
route(GateParams p) {
  pdl_wait_and_trigger();
  const int lane = thread_index() % warp_width();
  const int64_t token =
      block_index() * (kRouteThreads / warp_width()) + thread_index() / warp_width();
  if (token >= p.tokens) return;
  float* const scores = p.scores + token * p.k;
  int* const assignments = p.assignments + token * p.k;
  if (token >= p.counts[0]) {
    for (int i = lane; i < p.k; i += warp_width()) {
      scores[i] = 0;
      assignments[i] = -1;
      p.offsets[token * p.k + i] = -1;
    }
    return;
  }
  const T* const logits = static_cast<const T*>(p.logits) + token * p.row;
  Candidate last = {infinity(), -1};
  float most = 0, sum = 0;
  for (int i = 0; i < p.k; ++i) {
    Candidate best = {-infinity(), 0x7fffffff};
    for (int e = lane; e < p.count; e += warp_width()) {
      const float logit = to_float(logits[e]);
      const Candidate one = {logit == logit ? logit : infinity(), e};
      if (last.is_before(one) && one.is_before(best)) best = one;
    }
    last = best_of_warp(best);
    const float logit = to_float(logits[last.index]);
    if (i == 0) {
      most = logit;
      for (int e = lane; e < p.count; e += warp_width())
        sum += opdock::exp(to_float(logits[e]) - most);
      sum = warp_reduce<Sum>(sum);
    }
    if (lane == 0) {
      scores[i] = opdock::exp(logit - most) / sum;
      assignments[i] = last.index;
    }
  }
}

// Returns the sum of `value` over this thread and those before it in the block, and sets *total to
// that of all. scratch: shared, an int for each warp. All threads take part.
OPDOCK_DEVICE int sum_up_to(int value, int* scratch, int* total) {
  const int lane = thread_index() % warp_width(), warp = thread_index() / warp_width();
  OPDOCK_UNROLL
  for (int by = 1; by < warp_width(); by *= 2) {
    const int before = shuffle_up(value, by);
    value += lane >= by ? before : 0;
  }
  block_barrier();
  if (lane == warp_width() - 1) scratch[warp] = value;
  block_barrier();
  *total = 0;
  for (int i = 0; i < block_threads() / warp_width(); ++i) {
    if (i < warp) value += scratch[i];
    *total += scratch[i];
  }
  return value;
}

// A block counts the tokens of one expert, and numbers them.
OPDOCK_KERNEL(kRouteThreads) number(GateParams p) {
  pdl_wait_and_trigger();
  OPDOCK_SHARED(int, scratch, kRouteThreads / 32);
  const int expert = static_cast<int>(block_index());
  const int64_t all = p.tokens * p.k;
  int before = 0;
  for (int64_t base = 0; base < all; base += block_threads()) {
    const int64_t at = base + thread_index();
    const bool is_own = at < all && p.assignments[at] == expert;
    int total;
    const int place = before + sum_up_to(is_own ? 1 : 0, scratch, &total) - 1;
    if (is_own) p.offsets[at] = place;
    before += total;
  }
  if (thread_index() == 0) p.experts[expert] = before;
}

// The sum of experts[0 … end - 1], in every lane.
OPDOCK_DEVICE int64_t rows_before(const int* experts, int end) {
  int sum = 0;
  for (int e = thread_index() % warp_width(); e < end; e += warp_width()) sum += experts[e];
  OPDOCK_UNROLL
  for (int mask = warp_width() / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  return sum;
}

// Block t < tokens copies token t to the rows of its experts, and clears those of its k rows that
// are of no expert. In the blocks after them a warp computes the sum for one expert.
template <class T>
OPDOCK_KERNEL(kRouteThreads)
scatter(ScatterParams p) {
  pdl_wait_and_trigger();
  const int warps = block_threads() / warp_width(), warp = thread_index() / warp_width();
  const bool is_first = thread_index() % warp_width() == 0;
  const int64_t token = block_index();
  if (token >= p.tokens) {
    const int expert = static_cast<int>(token - p.tokens) * warps + warp;
    if (expert >= p.count) return;
    const int64_t sum = rows_before(p.experts, expert + 1);
    if (is_first) p.sums[expert] = sum;
    return;
  }
  const T* const from = static_cast<const T*>(p.x) + token * p.x_row;
  const int64_t rows = p.tokens * p.k;
  for (int i = warp; i < p.k; i += warps) {
    const int expert = p.assignments[token * p.k + i];
    int64_t slot = -1;
    if (expert >= 0 && expert < p.count) {
      slot = rows_before(p.experts, expert) + p.offsets[token * p.k + i];
      if (slot < 0 || slot >= rows) slot = -1;
    }
    if (is_first) p.slots[token * p.k + i] = static_cast<int>(slot);
  }
  const int64_t used = rows_before(p.experts, p.count);
  block_barrier();
  for (int i = 0; i < p.k; ++i) {
    const int64_t slot = p.slots[token * p.k + i], own = token * p.k + i;
    T* const out = static_cast<T*>(p.out);
    if (slot >= 0) copy_row(from, out + slot * p.columns, p.columns, p.by_vectors);
    if (own >= used) fill_row(out + own * p.columns, 0.0f, p.columns, p.by_vectors);
  }
}

template <class T>
OPDOCK_KERNEL(kRouteThreads)
gather(GatherParams p) {
  pdl_wait_and_trigger();
  const int64_t token = block_index();
  if (p.experts && token == 0)
    for (int e = thread_index(); e < p.count; e += block_threads()) p.experts[e] = 0;
  if (token >= p.tokens) return;
  const float* const scores = p.scores + token * p.k;
  const int* const slots = p.slots + token * p.k;
  float all = 0;
  for (int i = 0; i < p.k; ++i) all += scores[i];
  const float factor = p.normalize && all != 0.0f ? 1.0f / all : 1.0f;
  T* const to = static_cast<T*>(p.out) + token * p.columns;
  for_pieces<T>(p.columns, p.by_vectors, [&](int64_t at, auto piece) {
    constexpr int kSize = piece_size<decltype(piece)>;
    float sum[kSize] = {}, row[kSize];
    for (int i = 0; i < p.k; ++i) {
      const int64_t slot = slots[i];
      if (slot < 0 || slot >= p.x_rows) continue;
      load_piece(static_cast<const T*>(p.x) + slot * p.x_row + at, &piece);
      to_floats(piece, row);
      const float score = scores[i] * factor;
      OPDOCK_UNROLL
      for (int j = 0; j < kSize; ++j) sum[j] = opdock::fma(score, row[j], sum[j]);
    }
    from_floats(sum, &piece);
    store_piece(to + at, piece);
  });
}

}  // namespace ragged
