// Softmax and log-softmax along the last dimension, with scale, additive mask and causal masking.
// All arithmetic is in float.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
#include "opdock/row_powers.cuh"
#include "softmax_params.cuh"

namespace softmax {

using namespace opdock;
using opdock::exp;  // these declarations win over the compiler's own functions
using opdock::exp2;
using opdock::fma;
using opdock::log;
using opdock::max;

template <class T>
struct Row {
  const T* x;
  const T* mask;  // null: none
  T* out;
  int64_t open;  // elements before the causal limit; vectors behind them are not computed

  // Flat: the rows of each tensor, including the mask, are evenly spaced.
  template <bool Flat>
  static OPDOCK_DEVICE Row at(const Params& p, int64_t row) {
    long long offset[3];
    p.rows.locate<Flat>(row, offset);
    Row found;
    found.x = static_cast<const T*>(p.x) + offset[0];
    found.mask = p.mask ? static_cast<const T*>(p.mask) + offset[1] : nullptr;
    found.out = static_cast<T*>(p.out) + offset[2];
    found.open = p.causal ? query_of(row, p.queries) + 1 + p.length - p.queries : p.length;
    return found;
  }
};

// Scores are compared in a unit above 0 for which e^(unit * score) is the result. Without a mask
// the scores are the elements themselves, and the unit is the scale.
template <class T>
struct Plain {
  float unit;

  OPDOCK_DEVICE Plain(const Params& p, const Row<T>&) : unit(p.scale) {}
  template <class Piece>
  OPDOCK_DEVICE void scores(const Params&, int64_t, bool, const Piece& x,
                            float (&out)[piece_size<Piece>]) const {
    to_floats(x, out);
  }
};
template <class T>
struct Masked {
  static constexpr float unit = 1.0f;
  const T* mask;  // null: none
  int64_t open;

  OPDOCK_DEVICE Masked(const Params&, const Row<T>& row) : mask(row.mask), open(row.open) {}
  template <class Piece>
  OPDOCK_DEVICE void scores(const Params& p, int64_t column, bool here, const Piece& x,
                            float (&out)[piece_size<Piece>]) const {
    float more[piece_size<Piece>] = {};
    if (mask && here) {
      Piece side;
      if (p.mask_step)
        load_operand(mask, column, p.length, misalignment(mask + column), &side);
      else
        fill_piece(mask[0], &side);
      to_floats(side, more);
    }
    to_floats(x, out);
    OPDOCK_UNROLL
    for (int j = 0; j < piece_size<Piece>; ++j)
      out[j] = here && column + j < open ? fma(out[j], p.scale, more[j]) : -infinity();
  }
};

// Returns e^(unit * (score - base)). For 16-bit results the faster form suffices: they do not show
// the error of rounding base * factor.
template <class T>
OPDOCK_DEVICE float power_of(float score, float base, float unit) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return exp((score - base) * unit);
  } else {
    const float factor = unit * kLog2E;
    return exp2(fma(score, factor, -base * factor));
  }
}

template <template <class> class Scores, bool Causal>
struct Softmax {
  using Params = softmax::Params;
  static constexpr int kTiles = 1;
  static constexpr bool kHasOperands = false;

  template <class T, class Team>
  static OPDOCK_DEVICE void run(const Params& p, Team& team) {
    const Row<T> row = Row<T>::template at<Team::kPlain>(p, team.row());
    team.take(row.x, p.length);
    const Scores<T> of(p, row);
    const T lowest = from_float<T>(-infinity());
    auto tile = [&] {
      if constexpr (Causal)
        return team.load(row.x, lowest, row.open);
      else
        return team.load(row.x, lowest);
    }();

    const float in_warp = team.template warp_reduce<Max>(largest(p, team, of, tile));
    const float in_warp_base = base_of(in_warp);
    // Rows of floats keep their powers in registers; 16-bit types would need twice the registers.
    constexpr bool kKept = Team::kHolds && sizeof(T) == sizeof(float);
    const bool kept = kKept && !p.log;
    float sum = 0.0f;
    team.each(
        [&](int64_t column, bool here, auto& x) {
          constexpr int kSize = piece_size<decltype(x)>;
          if (Causal && column >= row.open) {
            if (kKept && !p.log) fill_piece(T{}, &x);
            return;
          }
          float value[kSize];
          of.scores(p, column, here, x, value);
          OPDOCK_UNROLL
          for (int j = 0; j < kSize; ++j) {
            value[j] = power_of<T>(value[j], in_warp_base, of.unit);
            sum += value[j];
          }
          if constexpr (kKept)
            if (kept) from_floats(value, &x);
        },
        tile);
    const Partial all = team.template team_reduce<0>({in_warp, team.template warp_reduce<Sum>(sum)},
                                                     AddPowers{of.unit});

    const float base = base_of(all.a);
    const float factor = all.b == 0.0f ? 0.0f : 1.0f / all.b;
    if (p.log) {
      const float logarithm = all.b == 0.0f ? 0.0f : log(all.b);
      write(p, team, of, tile, row,
            [&](float score) { return (score - base) * of.unit - logarithm; });
    } else if (kept) {
      const float rest = factor * exp((in_warp_base - base) * of.unit);
      team.map(
          row.out,
          [&](int64_t, bool, auto& x) {
            float value[piece_size<decltype(x)>];
            to_floats(x, value);
            OPDOCK_UNROLL
            for (float& power : value) power *= rest;
            from_floats(value, &x);
          },
          tile);
    } else {
      write(p, team, of, tile, row,
            [&](float score) { return power_of<T>(score, base, of.unit) * factor; });
    }
  }

 private:
  // Writes f(score) for each score.
  template <class T, class Team, class Tile, class F>
  static OPDOCK_DEVICE void write(const Params& p, Team& team, const Scores<T>& of, Tile& tile,
                                  const Row<T>& row, F f) {
    const T masked = from_float<T>(f(-infinity()));
    team.map(
        row.out,
        [&](int64_t column, bool here, auto& x) {
          if (Causal && column >= row.open) {
            fill_piece(masked, &x);
            return;
          }
          float value[piece_size<decltype(x)>];
          of.scores(p, column, here, x, value);
          OPDOCK_UNROLL
          for (float& score : value) score = f(score);
          from_floats(value, &x);
        },
        tile);
  }

  // Returns the largest of this thread's scores.
  template <class T, class Team, class Tile>
  static OPDOCK_DEVICE float largest(const Params&, Team& team, const Plain<T>&, Tile& tile) {
    Packed<T> most;
    fill_piece(from_float<T>(-infinity()), &most);
    float single = -infinity();
    team.each(
        [&](int64_t, bool, auto& x) {
          if constexpr (piece_size<decltype(x)> == 1)
            single = max(single, to_float(x.value));
          else
            most = max_packed(most, x);
        },
        tile);
    float value[vector_size<T>];
    to_floats(most, value);
    OPDOCK_UNROLL
    for (const float one : value) single = max(single, one);
    return single;
  }
  template <class T, class Team, class Tile>
  static OPDOCK_DEVICE float largest(const Params& p, Team& team, const Masked<T>& of, Tile& tile) {
    float most = -infinity();
    team.each(
        [&](int64_t column, bool here, auto& x) {
          float value[piece_size<decltype(x)>];
          of.scores(p, column, here, x, value);
          OPDOCK_UNROLL
          for (const float one : value) most = max(most, one);
        },
        tile);
    return most;
  }
};

// Softmax with a mask whose rows consist of whole vectors and are aligned as those of x are. The
// mask is loaded together with x, and the scores are kept as floats, which takes no more registers
// than both.
struct MaskedVectors {
  using Params = softmax::Params;
  static constexpr int kTiles = 2;
  static constexpr bool kHasOperands = true;

  template <class T, class Team>
  static OPDOCK_DEVICE void run(const Params& p, Team& team) {
    const Row<T> row = Row<T>::template at<false>(p, team.row());
    team.take(row.x, p.length);
    auto tile = team.load(row.x, T{}, row.open);
    const auto mask = team.load(row.mask, T{}, row.open);
    constexpr int kSize = vector_size<T>;
    constexpr int kVectors = sizeof(tile.body) / sizeof(tile.body[0]);
    float score[kVectors][kSize];

    float most = -infinity();
    int at = 0;  // a constant in each step, once the loops are unrolled
    team.each(
        [&](int64_t column, bool here, const auto& x, const auto& more) {
          float (&value)[kSize] = score[at++];
          float added[kSize];
          to_floats(x, value);
          to_floats(more, added);
          const int left = here ? static_cast<int>(row.open - column) : 0;
          OPDOCK_UNROLL
          for (int j = 0; j < kSize; ++j) {
            value[j] = j < left ? fma(value[j], p.scale, added[j]) : -infinity();
            most = max(most, value[j]);
          }
        },
        tile, mask);
    const float in_warp = team.template warp_reduce<Max>(most), in_warp_base = base_of(in_warp);
    float sum = 0.0f;
    OPDOCK_UNROLL
    for (int i = 0; i < kVectors * kSize; ++i) {
      float& value = score[i / kSize][i % kSize];
      value = power_of<T>(value, in_warp_base, 1.0f);
      sum += value;
    }
    const Partial all =
        team.template team_reduce<0>({in_warp, team.template warp_reduce<Sum>(sum)}, AddPowers());
    const float factor = all.b == 0.0f ? 0.0f : exp(in_warp_base - base_of(all.a)) / all.b;
    at = 0;
    team.map(
        row.out,
        [&](int64_t, bool, auto& x) {
          float (&value)[kSize] = score[at++];
          OPDOCK_UNROLL
          for (float& power : value) power *= factor;
          from_floats(value, &x);
        },
        tile);
  }
};

using PlainRows = Softmax<Plain, false>;
OPDOCK_ROW_KERNELS(PlainRows)
namespace causal {
using Rows = Softmax<Plain, true>;
OPDOCK_ROW_KERNELS(Rows)
}  // namespace causal
namespace masked {
using Rows = Softmax<Masked, true>;
OPDOCK_ROW_KERNELS(Rows)
}  // namespace masked
namespace masked_vectors {
OPDOCK_ROW_KERNELS(MaskedVectors)
}

}  // namespace softmax
