// The gradients of softmax and log_softmax along the last dimension, computed from their results.
// All arithmetic is in float.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
#include "opdock/row_team.cuh"
#include "softmax_params.cuh"

namespace softmax::backward {

using namespace opdock;
using opdock::exp;  // these declarations win over the compiler's own functions
using opdock::fma;

// Any: also handles causal rows, and gradients with one element for a whole row.
template <bool Any>
struct Backward {
  using Params = BackwardParams;
  static constexpr int kTiles = 2;
  static constexpr bool kHasOperands = false;

  template <class T, class Team>
  static OPDOCK_DEVICE void run(const Params& p, Team& team) {
    long long offset[3];
    p.rows.locate<Team::kPlain>(team.row(), offset);
    const T* const grads = static_cast<const T*>(p.grad) + offset[0];
    const T* const results = static_cast<const T*>(p.result) + offset[1];
    const bool is_broadcast = Any && p.is_broadcast;
    team.take(is_broadcast ? results : grads, p.length);
    int64_t open = p.length;
    if (Any && p.causal) open += query_of(team.row(), p.queries) + 1 - p.queries;
    const auto load = [&](const T* row, T fill) {
      if constexpr (Any)
        return team.load(row, fill, open);
      else
        return team.load(row, fill);
    };
    // For a spread gradient, load() reads nothing and fills the whole row with its one element.
    auto grad = is_broadcast ? team.load(grads, team.first(grads), 0) : load(grads, T{});
    const auto result = load(results, p.log ? from_float<T>(-infinity()) : T{});

    // The sum of grad * result, or for log_softmax of grad.
    float sum = 0.0f;
    team.each(
        [&](int64_t, bool, const auto& g, const auto& y) {
          float slope[piece_size<decltype(g)>], value[piece_size<decltype(g)>];
          to_floats(g, slope);
          to_floats(y, value);
          OPDOCK_UNROLL
          for (int j = 0; j < piece_size<decltype(g)>; ++j)
            sum = fma(slope[j], p.log ? unmasked(value[j]) : value[j], sum);
        },
        grad, result);
    const float all =
        team.template team_reduce<0>({team.template warp_reduce<Sum>(sum), 0.0f}, AddPartials{}).a;

    team.map(
        static_cast<T*>(p.out) + offset[2],
        [&](int64_t, bool, auto& g, const auto& y) {
          float slope[piece_size<decltype(g)>], value[piece_size<decltype(g)>];
          to_floats(g, slope);
          to_floats(y, value);
          OPDOCK_UNROLL
          for (int j = 0; j < piece_size<decltype(g)>; ++j) {
            if (p.log)
              slope[j] = unmasked(value[j]) == 0.0f ? 0.0f : fma(-exp(value[j]), all, slope[j]);
            else
              slope[j] = fma(value[j], slope[j], -value[j] * all);
            slope[j] *= p.scale;
          }
          from_floats(slope, &g);
        },
        grad, result);
  }

 private:
  // Returns 0 for masked elements, whose logarithm is -inf, and 1 for others.
  static OPDOCK_DEVICE float unmasked(float logarithm) {
    return logarithm == -infinity() ? 0.0f : 1.0f;
  }
};

OPDOCK_ROW_KERNELS(Backward<true>)
namespace whole {
OPDOCK_ROW_KERNELS(Backward<false>)
}

}  // namespace softmax::backward
