// The gradients of attention without tensor cores, for any rows and elements. Weights are computed
// again from the logarithms of their sums. One kernel goes through the keys for some rows, and
// gives the gradient of q; the other goes through the rows for some keys, and gives those of k and
// v. So each element has one block that adds up its terms, always in the same order.
//
// Eight lanes have an eighth each of a head's elements, as in plain.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backward_params.cuh"
#include "plain.cuh"

namespace attention {

// The numbers of a row that its weights and their gradients are computed from.
struct RowSums {
  float reduce;  // the logarithm of the sum of exponentials as an exponent of 2, infinity for none
  float delta;   // the sum of grad * result, less the gradient of the logarithm

  OPDOCK_DEVICE static float* of(const BackwardParams& b, const Block& block, const Row& row) {
    return static_cast<float*>(b.rows) + b.row_at(block.batch, row.head, row.query);
  }
  OPDOCK_DEVICE void load(const BackwardParams& b, const Block& block, const Row& row) {
    const float* const from = of(b, block, row);
    reduce = from[0];
    delta = from[1];
  }
  OPDOCK_DEVICE float weight(float score) const { return opdock::exp2(score - reduce); }
  // Returns the gradient of a score without the factor `scale`. grad: the product of the result's
  // gradient with the value. A weight of 0 gives 0, even if the value is NaN.
  OPDOCK_DEVICE float score_grad(float weight, float grad) const {
    return weight == 0 ? 0.0f : weight * (grad - delta);
  }
};

// Computes RowSums of all rows, a row for each eight threads. Form: Batches or Sequences.
template <class T, class Form>
OPDOCK_DEVICE void add_row_sums(const BackwardParams& b) {
  const Params& p = b.p;
  constexpr int kTeams = kRowThreads / kTeam;
  const Block block = Form::rows(p, static_cast<int>(block_index()), kTeams, 0);
  if (Form::kMayBeEmpty && block.rows <= 0) return;
  const int team = thread_index() / kTeam, member = thread_index() % kTeam;
  const Row row(p, block, team);
  const T* const grad =
      static_cast<const T*>(b.grad.data) + b.grad.at(block.batch, row.query, row.head);
  const T* const result =
      static_cast<const T*>(b.result.data) + b.result.at(block.batch, row.query, row.head);
  float sum = 0;
  constexpr int kPiece = vector_size<T>;
  for (int first = member * kPiece; first < p.size; first += kTeam * kPiece) {
    if (p.by_vectors) {
      Packed<T> pieces[2];
      load_piece(grad + first, &pieces[0]);
      load_piece(result + first, &pieces[1]);
      float values[2][kPiece];
      to_floats(pieces[0], values[0]);
      to_floats(pieces[1], values[1]);
      OPDOCK_UNROLL
      for (int j = 0; j < kPiece; ++j) sum = opdock::fma(values[0][j], values[1][j], sum);
      continue;
    }
    for (int j = first; j < first + kPiece && j < p.size; ++j)
      sum = opdock::fma(to_float(grad[j * b.grad_element]), to_float(result[j]), sum);
  }
  sum += shuffle_xor(sum, 4);
  sum += shuffle_xor(sum, 2);
  sum += shuffle_xor(sum, 1);
  if (member != 0 || !row.exists) return;
  const float lse =
      static_cast<const float*>(b.lse.data)[b.lse.at(block.batch, row.head, row.query)];
  if (b.grad_lse.data)
    sum -=
        static_cast<const float*>(b.grad_lse.data)[b.grad_lse.at(block.batch, row.head, row.query)];
  float* const to = RowSums::of(b, block, row);
  to[0] = lse == -infinity() ? infinity() : lse * kLog2E;
  to[1] = lse == -infinity() ? 0.0f : sum;
}

// Returns the products of two pairs of vectors that eight lanes share.
template <class Part>
OPDOCK_DEVICE void multiply_shares(const Part& a0, const Part& b0, const Part& a1, const Part& b1,
                                   float* first, float* second) {
  float products[2] = {};
  OPDOCK_UNROLL
  for (int i = 0; i < Part::kPieces * Part::kPiece; ++i) {
    products[0] = opdock::fma(a0.at[i], b0.at[i], products[0]);
    products[1] = opdock::fma(a1.at[i], b1.at[i], products[1]);
  }
  OPDOCK_UNROLL
  for (int mask = kTeam / 2; mask > 0; mask /= 2) {
    products[0] += shuffle_xor(products[0], mask);
    products[1] += shuffle_xor(products[1], mask);
  }
  *first = products[0];
  *second = products[1];
}

// Adds by * from to sums; by == 0 adds nothing, even if an element of `from` is NaN.
template <class Part>
OPDOCK_DEVICE void add_share(float by, const Part& from, Part* sums) {
  OPDOCK_UNROLL
  for (int i = 0; i < Part::kPieces * Part::kPiece; ++i)
    sums->at[i] = opdock::fma(by, by == 0 ? 0.0f : from.at[i], sums->at[i]);
}

// Adds up the sums of all teams, kPlainThreads / kTeam, in a fixed order, and calls store(row,
// element, sum) for the elements of `count` rows. shared: room for Count * Size floats for each
// warp. All threads of the block call this.
template <int Size, int Count, class Part, class Store>
OPDOCK_DEVICE void add_teams(Part (&sums)[Count], int count, float* shared, const Store& store) {
  const int warp = thread_index() / warp_width(), lane = thread_index() % warp_width();
  block_barrier();  // others may still read `shared`
  OPDOCK_UNROLL
  for (int r = 0; r < Count; ++r) {
    OPDOCK_UNROLL
    for (int i = 0; i < Part::kPieces * Part::kPiece; ++i) {
      float& sum = sums[r].at[i];
      for (int mask = kTeam; mask < warp_width(); mask *= 2) sum += shuffle_xor(sum, mask);
      if (lane < kTeam)
        shared[(warp * Count + r) * Size + (kTeam * (i / Part::kPiece) + lane) * Part::kPiece +
               i % Part::kPiece] = sum;
    }
  }
  block_barrier();
  for (int i = thread_index(); i < count * Size; i += kPlainThreads) {
    float sum = 0;
    for (int w = 0; w < kPlainThreads / warp_width(); ++w) sum += shared[w * Count * Size + i];
    store(i / Size, i % Size, sum);
  }
}

// The gradient of q, for a tile of rows and all keys that they see.
template <class T, int Size, class Form, class Drop = KeptWeights>
OPDOCK_DEVICE void plain_query_gradients(const BackwardParams& b) {
  const Params& p = b.p;
  constexpr int kTeams = kPlainThreads / kTeam, kRows = backward_rows(Size);
  using Part = Share<T, Size>;
  const Block block = Form::rows(p, static_cast<int>(block_index()), kRows, 0);
  if (Form::kMayBeEmpty && block.rows <= 0) return;
  Part q[kRows], grad[kRows], sums[kRows];
  RowSums of[kRows];
  int first[kRows], end[kRows];
  OPDOCK_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const Row row(p, block, r);
    of[r].load(b, block, row);
    first[r] = row.first;
    end[r] = row.end;
    sums[r].clear();
    q[r].load(p, p.q.data, p.q.at(block.batch, row.query, row.head), kSame);
    grad[r].load(p, b.grad.data, b.grad.at(block.batch, row.query, row.head), kSame,
                 b.grad_element);
  }
  const bool has_added = p.mask.data || p.bias.data || p.slopes;
  const Drop drop(p);
  // All lanes continue as long as one does, because they exchange values.
  for (int base = block.first; base < block.end; base += kTeams) {
    const int key = base + thread_index() / kTeam;
    const int place = key < block.end ? key : block.end - 1;
    Part k, v;
    k.load(p, p.k.data, p.k.at(block.key_batch, place, block.head), kSame, p.key_element);
    v.load(p, p.v.data, p.v.at(block.key_batch, place, block.head), kSame);
    OPDOCK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float score, product;
      multiply_shares(q[r], k, grad[r], v, &score, &product);
      score *= p.scale;
      const bool is_seen = key >= first[r] && key < end[r];
      if (has_added && is_seen) score = RowAdded<T>(p, block, Row(p, block, r))(p, score, key);
      const float weight = is_seen ? of[r].weight(score) : 0.0f;
      if constexpr (Drop::kDrops)
        product = drop.keeps(p, drop.row(p, block, Row(p, block, r)), place)
                      ? product * p.drop.factor
                      : 0.0f;
      add_share(of[r].score_grad(weight, product), k, &sums[r]);
    }
  }
  OPDOCK_SHARED(float, shared, kRows * Size * (kPlainThreads / 32));
  add_teams<Size>(sums, block.rows, shared, [&](int r, int element, float sum) {
    if (element >= p.size) return;
    const Row row(p, block, r);
    static_cast<T*>(b.grad_q.data)[b.grad_q.at(block.batch, row.query, row.head) + element] =
        from_float<T>(block.is_bad ? bits_float(0x7fc00000u) : sum * b.scale);
  });
}

// The keys of a block, and the rows of which at least one sees one of them.
struct KeyBlock {
  int first, count;
  int first_row, end_row;

  OPDOCK_DEVICE KeyBlock(const Params& p, const Block& block, int tile, int tile_keys)
      : first(tile * tile_keys) {
    count = block.keys - first < tile_keys ? block.keys - first : tile_keys;
    int first_query = 0, end_query = first < block.length ? block.queries : 0;
    if (p.causal) {
      const int behind = block.length - block.queries;  // position of the first query
      if (first > behind) first_query = first - behind;
      const int64_t last = static_cast<int64_t>(first) + count - 1 - behind;
      if (p.window > 0 && last + p.window < end_query)
        end_query = last + p.window > 0 ? static_cast<int>(last + p.window) : 0;
    }
    first_row = first_query * p.group;
    end_row = end_query * p.group;
  }
};

// The gradients of k and v, for a tile of keys and all rows that see them.
template <class T, int Size, class Form, class Drop = KeptWeights>
OPDOCK_DEVICE void plain_key_gradients(const BackwardParams& b) {
  const Params& p = b.p;
  constexpr int kTeams = kPlainThreads / kTeam, kRows = backward_rows(Size);
  using Part = Share<T, Size>;
  int tile = static_cast<int>(block_index());
  const Block block = Form::of_keys(p, kRows, &tile);
  const KeyBlock keys(p, block, tile, kRows);
  if (Form::kMayBeEmpty && keys.count <= 0) return;
  Part k[kRows], v[kRows], k_sums[kRows], v_sums[kRows];
  const int last = block.length < block.keys ? block.length - 1 : block.keys - 1;
  OPDOCK_UNROLL
  for (int r = 0; r < kRows; ++r) {
    k[r].clear();
    v[r].clear();
    k_sums[r].clear();
    v_sums[r].clear();
    if (r >= keys.count || keys.first + r > last) continue;  // it is not read
    const int key = keys.first + r;
    k[r].load(p, p.k.data, p.k.at(block.key_batch, key, block.head), kSame, p.key_element);
    v[r].load(p, p.v.data, p.v.at(block.key_batch, key, block.head), kSame);
  }
  const Drop drop(p);
  for (int base = keys.first_row; base < keys.end_row; base += kTeams) {
    const int number = base + thread_index() / kTeam;
    const Row row(p, block, number < keys.end_row ? number : keys.end_row - 1);
    Part q, grad;
    q.load(p, p.q.data, p.q.at(block.batch, row.query, row.head), kSame);
    grad.load(p, b.grad.data, b.grad.at(block.batch, row.query, row.head), kSame, b.grad_element);
    RowSums of;
    of.load(b, block, row);
    const RowAdded<T> added(p, block, row);
    const int end = number < keys.end_row ? row.end : 0;
    OPDOCK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float score, product;
      multiply_shares(q, k[r], grad, v[r], &score, &product);
      const int key = keys.first + r;
      const bool is_seen = key >= row.first && key < end;
      const float weight = is_seen ? of.weight(added(p, score * p.scale, key)) : 0.0f;
      float factor = 1;
      if constexpr (Drop::kDrops)
        factor = drop.keeps(p, drop.row(p, block, row), key) ? p.drop.factor : 0.0f;
      add_share(weight * factor, grad, &v_sums[r]);
      add_share(of.score_grad(weight, product * factor), q, &k_sums[r]);
    }
  }
  OPDOCK_SHARED(float, shared, kRows * Size * (kPlainThreads / 32));
  const float bad = block.is_bad ? bits_float(0x7fc00000u) : 0.0f;
  add_teams<Size>(k_sums, keys.count, shared, [&](int r, int element, float sum) {
    if (element < p.size)
      static_cast<T*>(b.grad_k.data)[b.grad_k.at(block.key_batch, keys.first + r, block.head) +
                                     element * b.grad_k_element] =
          from_float<T>(sum * b.scale + bad);
  });
  add_teams<Size>(v_sums, keys.count, shared, [&](int r, int element, float sum) {
    if (element < p.size)
      static_cast<T*>(
          b.grad_v.data)[b.grad_v.at(block.key_batch, keys.first + r, block.head) + element] =
          from_float<T>(sum + bad);
  });
}

template <class T>
OPDOCK_KERNEL(kRowThreads)
backward_row_sums(BackwardParams b) {
  pdl_wait_and_trigger();
  add_row_sums<T, Batches>(b);
}

template <class T, int Size>
OPDOCK_KERNEL_BLOCKS(kPlainThreads, 1)
backward_queries(BackwardParams b) {
  pdl_wait_and_trigger();
  plain_query_gradients<T, Size, Batches>(b);
}

template <class T, int Size>
OPDOCK_KERNEL_BLOCKS(kPlainThreads, 1)
backward_keys(BackwardParams b) {
  pdl_wait_and_trigger();
  plain_key_gradients<T, Size, Batches>(b);
}

}  // namespace attention
