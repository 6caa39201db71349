// The gradients of softmax and log_softmax along the last dimension, from their results; in float.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
#include "opdock/row_team.cuh"
#include "softmax_params.cuh"

namespace softmax::backward {

using namespace opdock;
using opdock::exp;  // named, these win over the compiler's own
using opdock::fma;

// Any: knows causal rows too, and gradients that are one element for all of a row.
template <bool Any>
struct Backward {
  using Params = BackwardParams;
  static constexpr int kTiles = 2;
  static constexpr bool kBeside = false;

  template <class T, class Team>
  static OPDOCK_DEVICE void run(const Params& p, Team& team) {
    long long offset[3];
    p.rows.locate<Team::kPlain>(team.row(), offset);
    const T* const grads = static_cast<const T*>(p.grad) + offset[0];
    const T* const results = static_cast<const T*>(p.result) + offset[1];
    const bool is_spread = Any && p.spread;
    team.take(is_spread ? results : grads, p.length);
    int64_t open = p.length;
    if (Any && p.causal) open += query_of(team.row(), p.queries) + 1 - p.queries;
    const auto load = [&](const T* row, T fill) {
      if constexpr (Any)
        return team.load(row, fill, open);
      else
        return team.load(row, fill);
    };
    // What stands where nothing is read: all of the row.
    auto grad = is_spread ? team.load(grads, team.first(grads), 0) : load(grads, T{});
    const auto result = load(results, p.log ? from_float<T>(-infinity()) : T{});

    // Of grad * result, or for the logarithm, of grad.
    float sum = 0.0f;
    team.each(
        [&](int64_t, bool, const auto& g, const auto& y) {
          float slope[piece_size<decltype(g)>], value[piece_size<decltype(g)>];
          to_floats(g, slope);
          to_floats(y, value);
          OPDOCK_UNROLL
          for (int j = 0; j < piece_size<decltype(g)>; ++j)
            sum = fma(slope[j], p.log ? taking_part(value[j]) : value[j], sum);
        },
        grad, result);
    const float all = team.template far<0>({team.template near<Sum>(sum), 0.0f}, AddPartials{}).a;

    team.map(
        static_cast<T*>(p.out) + offset[2],
        [&](int64_t, bool, auto& g, const auto& y) {
          float slope[piece_size<decltype(g)>], value[piece_size<decltype(g)>];
          to_floats(g, slope);
          to_floats(y, value);
          OPDOCK_UNROLL
          for (int j = 0; j < piece_size<decltype(g)>; ++j) {
            if (p.log)
              slope[j] = taking_part(value[j]) == 0.0f ? 0.0f : fma(-exp(value[j]), all, slope[j]);
            else
              slope[j] = fma(value[j], slope[j], -value[j] * all);
            slope[j] *= p.scale;
          }
          from_floats(slope, &g);
        },
        grad, result);
  }

 private:
  // 0 for elements that are masked: of these the logarithm is -inf.
  static OPDOCK_DEVICE float taking_part(float logarithm) {
    return logarithm == -infinity() ? 0.0f : 1.0f;
  }
};

OPDOCK_ROW_KERNELS(Backward<true>)
namespace whole {
OPDOCK_ROW_KERNELS(Backward<false>)
}

}  // namespace softmax::backward
