// Cross entropy of rows of logits, and its gradient, from one read of the logits. All arithmetic is
// in float.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cross_entropy_params.cuh"
#include "opdock/device.cuh"
#include "opdock/row_powers.cuh"

namespace cross_entropy {

using namespace opdock;
using opdock::exp;  // these declarations win over the compiler's own functions
using opdock::exp2;
using opdock::fma;
using opdock::log;
using opdock::max;

inline constexpr float kLog2E = 1.44269504f;

template <class T>
struct Row {
  const T* logits;
  T* gradient;            // null: not wanted
  float* loss;            // null: not wanted
  bool has_valid_target;  // the target is a class; rows with other targets are not read
  float scale;  // scale of the gradient; if the row does not count, the value of all its results
  int64_t at;   // the target; 0 if the row does not count

  template <class Team>
  OPDOCK_DEVICE Row(const Params& p, const Team& team) {
    long long offset[5];
    p.rows.locate<Team::kPlain>(team.row(), offset);
    logits = static_cast<const T*>(p.logits) + offset[0];
    gradient = p.gradient ? static_cast<T*>(p.gradient) + offset[4] : nullptr;
    loss = p.loss ? static_cast<float*>(p.loss) + offset[3] : nullptr;
    at = p.target_at(offset[1]);
    const bool is_ignored = at == p.ignore_index;
    has_valid_target = !is_ignored && at >= 0 && at < p.length;
    if (has_valid_target) {
      scale = p.scale ? static_cast<const float*>(p.scale)[offset[2]] : 1.0f;
    } else {
      scale = is_ignored ? 0.0f : infinity() - infinity();
      at = 0;
    }
  }
};

// Computes e^(logit - base). For 16 bits by one fused multiplication and addition, with base *
// log2(e) rounded: the powers must then be multiplied by `rest`.
template <class T>
struct Powers {
  float base, shift, rest;

  OPDOCK_DEVICE explicit Powers(float of) : base(of), shift(-of * kLog2E), rest(1.0f) {
    if constexpr (sizeof(T) == 2) rest = exp2(fma(-of, kLog2E, -shift));
  }
  OPDOCK_DEVICE float operator()(float logit) const {
    if constexpr (sizeof(T) == 2)
      return exp2(fma(logit, kLog2E, shift));
    else
      return exp(logit - base);
  }
};

// This thread's part of a row: its largest logit and, if rows are not held, the sum of its powers.
// The thread that has the target's logit writes the loss, and overwrites the target's gradient.
struct ThreadState {
  float most = -infinity(), sum = 0.0f;
  bool has_target = false;

  template <class Column>
  OPDOCK_DEVICE void find(int64_t at, Column column, bool here, int size) {
    const Column place = static_cast<Column>(at) - column;
    has_target |= here && place >= 0 && place < size;
  }
};

struct CrossEntropy {
  using Params = cross_entropy::Params;
  static constexpr int kTiles = 1;
  static constexpr bool kHasOperands = false;

  template <class T, class Team>
  static OPDOCK_DEVICE void run(const Params& p, Team& team) {
    const Row<T> row(p, team);
    team.take(row.logits, p.length);
    auto tile =
        team.load(row.logits, from_float<T>(-infinity()), row.has_valid_target ? p.length : 0);
    ThreadState state;
    const Partial in_warp = [&] {
      if constexpr (Team::kHolds)
        return held<T>(team, row, tile, &state);
      else
        return streamed<T>(team, row, tile, &state);
    }();
    const float target = state.has_target ? to_float(row.logits[row.at]) : 0.0f;
    const Partial all = team.template team_reduce<0>(in_warp, AddPowers{});
    const Powers<T> power(base_of(all.a));

    const float of_sum = log(all.b);
    float loss = of_sum + (all.a - target);
    if (p.smoothing > 0.0f && row.loss) {
      // Computes the mean of -log(p) from how far the logits are below the largest, which loses no
      // precision.
      float below = 0.0f;
      team.each(
          [&](auto, bool here, auto& x) {
            float value[piece_size<decltype(x)>];
            to_floats(x, value);
            OPDOCK_UNROLL
            for (float& v : value)
              if (here) below += power.base - v;
          },
          tile);
      below =
          team.template team_reduce<1>({team.template warp_reduce<Sum>(below), 0.0f}, AddPartials{})
              .a;
      const float mean = fma(below, p.share, of_sum);
      loss = fma(p.smoothing, mean, (1.0f - p.smoothing) * loss);
    }
    if (state.has_target && row.loss) *row.loss = row.has_valid_target ? loss : row.scale;
    if (!row.gradient) return;
    const float factor = row.has_valid_target ? row.scale / all.b * power.rest : 0.0f;
    const float offset = row.has_valid_target ? -p.smoothing * p.share * row.scale : row.scale;
    team.map(
        row.gradient,
        [&](auto, bool, auto& x) {
          float value[piece_size<decltype(x)>];
          to_floats(x, value);
          OPDOCK_UNROLL
          for (float& v : value) v = fma(power(v), factor, offset);
          from_floats(value, &x);
        },
        tile);
    if (state.has_target && row.has_valid_target) {
      const float others = fma(power(target), factor, offset);
      row.gradient[row.at] = from_float<T>(others - (1.0f - p.smoothing) * row.scale);
    }
  }

 private:
  // Returns the largest logit and the sum of powers of the threads that exchange registers.
  template <class T, class Team, class Tile>
  static OPDOCK_DEVICE Partial held(Team& team, const Row<T>& row, Tile& tile, ThreadState* state) {
    Packed<T> packed;
    fill_piece(from_float<T>(-infinity()), &packed);
    team.each(
        [&](auto column, bool here, auto& x) {
          if constexpr (piece_size<decltype(x)> == 1)
            state->most = max(state->most, to_float(x.value));
          else
            packed = max_packed(packed, x);
          state->find(row.at, column, here, piece_size<decltype(x)>);
        },
        tile);
    float most[vector_size<T>];
    to_floats(packed, most);
    OPDOCK_UNROLL
    for (const float one : most) state->most = max(state->most, one);
    const float in_warp = team.template warp_reduce<Max>(state->most);

    const Powers<T> power(base_of(in_warp));
    float sum = 0.0f;
    team.each(
        [&](auto, bool, auto& x) {
          float value[piece_size<decltype(x)>];
          to_floats(x, value);
          OPDOCK_UNROLL
          for (const float v : value) sum += power(v);
        },
        tile);
    return {in_warp, team.template warp_reduce<Sum>(sum * power.rest)};
  }

  // Returns the same for rows that every pass must read again, and therefore in a single pass.
  template <class T, class Team, class Tile>
  static OPDOCK_DEVICE Partial streamed(Team& team, const Row<T>& row, Tile& tile,
                                        ThreadState* state) {
    team.each(
        [&](auto column, bool here, auto& x) {
          float value[piece_size<decltype(x)>];
          to_floats(x, value);
          float most = state->most;
          OPDOCK_UNROLL
          for (const float v : value) most = max(most, v);
          const float base = base_of(most);
          if (most > state->most) state->sum *= exp(state->most - base);
          state->most = most;
          OPDOCK_UNROLL
          for (const float v : value)
            state->sum += sizeof(T) == 2 ? exp2((v - base) * kLog2E) : exp(v - base);
          state->find(row.at, column, here, piece_size<decltype(x)>);
        },
        tile);
    const float in_warp = team.template warp_reduce<Max>(state->most);
    const float sum = AddPowers{}.moved({state->most, state->sum}, in_warp);
    return {in_warp, team.template warp_reduce<Sum>(sum)};
  }
};

OPDOCK_ROW_KERNELS(CrossEntropy)

}  // namespace cross_entropy
