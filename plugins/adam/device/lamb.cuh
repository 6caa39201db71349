// LAMB over many tensors: one pass updates the averages and adds up the squares of weights and
// changes, the next one changes the weights. Blocks add in a fixed order, so that results are the
// same each time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adam_step.cuh"
#include "lamb_params.cuh"
#include "lists.cuh"

namespace lamb {

using namespace optimizer;
using opdock::fma;
using opdock::sqrt;

// The change of a weight, before the trust ratio and the learning rate.
OPDOCK_DEVICE float change_of(const Params& p, float weight, float mean, float square) {
  const float root = p.is_eps_inside_sqrt ? sqrt(square + p.eps) : sqrt(square) + p.eps;
  return fma(p.weight_decay, weight, mean / root);
}

template <class T>
struct AddSquares {
  static constexpr bool kReadsGrads = true, kWritesStates = true;
  static constexpr bool kWritesWeights = false, kAddsUp = true;
  const Params& p;
  bool is_float_state;
  float scale;
  float weights, changes;  // sums of squares

  OPDOCK_DEVICE bool begin() {
    if (p.begin.found_inf != nullptr && *p.begin.found_inf != 0) return false;
    scale = p.begin.grad_scale != nullptr ? *p.begin.grad_scale : 1.0f;
    return true;
  }
  // Rounds a number as the second pass finds it.
  OPDOCK_DEVICE float stored(float value) const {
    return is_float_state ? value : to_float(from_float<T>(value));
  }
  OPDOCK_DEVICE void step(float& weight, float grad, float (&state)[2]) {
    if (p.begin.grad_scale != nullptr) grad /= scale;
    grad *= p.sign;
    state[0] = blend(p.beta1, state[0], p.rest1, grad);
    state[1] = blend(p.beta2, state[1], p.rest2 * grad, grad);
    const float change = change_of(p, weight, stored(state[0]), stored(state[1]));
    weights = fma(weight, weight, weights);
    changes = fma(change, change, changes);
  }
};

struct Move {
  static constexpr bool kReadsGrads = false, kWritesStates = false;
  static constexpr bool kWritesWeights = true, kAddsUp = false;
  const Params& p;
  float factor;  // learning rate * trust ratio

  OPDOCK_DEVICE bool begin() const { return true; }
  OPDOCK_DEVICE void step(float& weight, float, float (&state)[2]) const {
    weight = fma(-factor, change_of(p, weight, state[0], state[1]), weight);
  }
};

// A block's part of a tensor.
struct Part {
  int which;
  int64_t first_block, last_block;  // the tensor's blocks, the last one excluded
  int64_t begin, end;               // its elements, the last one excluded

  OPDOCK_DEVICE explicit Part(const Params& p) {
    const int64_t block = block_index();
    which = upper_bound(p.lists.end, p.lists.count, block);
    first_block = which == 0 ? 0 : p.lists.end[which - 1];
    last_block = p.lists.end[which];
    const int64_t numel = p.lists.numel[which], size = part_of(numel);
    begin = (block - first_block) * size;
    end = begin + size < numel ? begin + size : numel;
  }
  template <class T, class Rule>
  OPDOCK_DEVICE void update(const Params& p, Rule& rule) const {
    OPDOCK_NO_UNROLL
    for (int64_t at = begin; at < end; at += kChunk)
      update_piece<T>(p.lists, which, at + thread_index() * kItems, rule);
  }
};

template <class T>
OPDOCK_KERNEL(kThreads)
norms(Params p) {
  launch_dependents();
  OPDOCK_SHARED(float, scratch, kThreads);
  if (p.begin.step != nullptr && block_index() == 0 && thread_index() == 0)
    *p.begin.current = adam::begin_step(p.begin);
  if (p.lists.count == 0) return;
  const Part part(p);
  constexpr bool kNarrow = sizeof(T) < sizeof(float);
  AddSquares<T> sums = {p, !kNarrow || (p.lists.is_float & kFloatStates) != 0, 1.0f, 0.0f, 0.0f};
  part.update<T>(p, sums);
  const float weights = block_reduce<Sum>(sums.weights, scratch);
  const float changes = block_reduce<Sum>(sums.changes, scratch);
  if (thread_index() == 0) p.squares[block_index()] = {weights, changes};
  if (block_index() == grid_blocks() - 1) launch_wait();
}

template <class T>
OPDOCK_KERNEL(kThreads)
update(Params p) {
  launch_dependents();
  OPDOCK_SHARED(float, scratch, kThreads);
  const Part part(p);
  float weights = 0.0f, changes = 0.0f;
  for (int64_t i = part.first_block + thread_index(); i < part.last_block; i += kThreads) {
    const Squares one = p.squares[i];
    weights += one.weight;
    changes += one.change;
  }
  weights = sqrt(block_reduce<Sum>(weights, scratch));
  changes = sqrt(block_reduce<Sum>(changes, scratch));
  const adam::Current now = *p.begin.current;
  const bool is_skipped = now.is_skipped != 0;
  const float ratio = is_skipped ? 0.0f : trust_ratio(weights, changes, p.min_coeff, p.max_coeff);
  if (block_index() == part.first_block && thread_index() == 0) p.ratios[part.which] = ratio;
  if (!is_skipped) {
    Move move = {p, (now.rate.high + now.rate.low) * ratio};
    part.update<T>(p, move);
  }
  if (block_index() == grid_blocks() - 1) launch_wait();
}

}  // namespace lamb
