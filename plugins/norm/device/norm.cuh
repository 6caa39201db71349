// Layer and rms norm along the last dimension, with the addition before them; in float.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "norm_params.cuh"
#include "opdock/device.cuh"
#include "opdock/row_team.cuh"

namespace layernorm {

using namespace opdock;
using opdock::fma;  // named, these win over the compiler's own
using opdock::rsqrt;

template <class T>
struct Row {
  const T* x;
  const T* residual;  // null: none
  T* out;
  T* sum;

  template <class Team>
  OPDOCK_DEVICE Row(const Params& p, const Team& team) {
    long long offset[4];
    p.rows.locate<Team::kPlain>(team.row(), offset);
    x = static_cast<const T*>(p.x) + offset[0];
    residual = p.residual ? static_cast<const T*>(p.residual) + offset[1] : nullptr;
    out = static_cast<T*>(p.out) + offset[2];
    sum = static_cast<T*>(p.sum) + offset[3];
  }
};

// (x - mean) * factor + rest is the normalised element.
struct Moments {
  float mean, factor, rest;
};

template <bool Add>
struct Norm {
  using Params = layernorm::Params;
  static constexpr int kTiles = Add ? 2 : 1;

  template <class T, class Team>
  static OPDOCK_DEVICE void run(const Params& p, Team& team) {
    const Row<T> row(p, team);
    team.take(row.x, p.length);
    auto tile = team.load(row.x, T{});
    if constexpr (Add) {
      // What is normalised is the sum as it is stored, rounded.
      const auto residual = team.load(row.residual, T{});
      team.map(
          row.sum,
          [&](int64_t, bool, auto& x, const auto& r) {
            float a[piece_size<decltype(x)>], b[piece_size<decltype(x)>];
            to_floats(x, a);
            to_floats(r, b);
            OPDOCK_UNROLL
            for (int j = 0; j < piece_size<decltype(x)>; ++j) a[j] += b[j];
            from_floats(a, &x);
          },
          tile, residual);
      tile = team.again(tile, row.sum);
    }
    float shift = 0.0f;
    const Pair sums = deviations(p, team, tile, row, &shift);
    const T* const weight = static_cast<const T*>(p.weight);
    const T* const bias = static_cast<const T*>(p.bias);
    if (weight && bias) {
      const auto sides = team.ask(weight, bias);
      write(team, tile, row, moments(p, team, sums, shift), sides,
            [](float y, const float (&s)[2]) { return fma(y, s[0], s[1]); });
    } else if (weight) {
      const auto sides = team.ask(weight);
      write(team, tile, row, moments(p, team, sums, shift), sides,
            [](float y, const float (&s)[1]) { return y * s[0]; });
    } else {
      const auto sides = team.ask(bias ? bias : row.x);
      write(team, tile, row, moments(p, team, sums, shift), sides,
            [&](float y, const float (&s)[1]) { return bias ? y + s[0] : y; });
    }
  }

 private:
  // The sums of the deviations from *shift, a number near the mean, and of their squares; of the
  // threads that exchange registers.
  template <class T, class Team, class Tile>
  static OPDOCK_DEVICE Pair deviations(const Params& p, Team& team, Tile& tile, const Row<T>& row,
                                       float* shift) {
    T first{};
    if constexpr (sizeof(T) == sizeof(float)) {
      if (p.centred) {
        float sum = 0.0f;
        team.each(
            [&](int64_t, bool, auto& x) {
              OPDOCK_UNROLL
              for (int j = 0; j < piece_size<decltype(x)>; ++j) sum += x.get(j);
            },
            tile);
        sum = team.template near<Sum>(sum);
        *shift = team.template far<0>({sum, 0.0f}, AddPairs{}).a * p.share;
      }
    } else if (p.centred) {
      // Any number among the elements will do: with it, what the squares lose to the mean stays
      // below what the result's rounding loses.
      first = row.x[0];
      if constexpr (Add) first = from_float<T>(to_float(first) + to_float(row.residual[0]));
      *shift = to_float(first);
    }
    const float from = *shift;
    Pair sums = {};
    team.each(
        [&](int64_t, bool here, auto& x) {
          constexpr int kSize = piece_size<decltype(x)>;
          float value[kSize];
          auto copy = x;
          if (!here && p.centred) fill_piece(first, &copy);
          to_floats(copy, value);
          OPDOCK_UNROLL
          for (int j = 0; j < kSize; ++j) {
            float deviation = value[j] - from;
            if (sizeof(T) == sizeof(float) && !here) deviation = 0.0f;
            sums.a += deviation;
            sums.b = fma(deviation, deviation, sums.b);
          }
        },
        tile);
    return {team.template near<Sum>(sums.a), team.template near<Sum>(sums.b)};
  }

  template <class Team>
  static OPDOCK_DEVICE Moments moments(const Params& p, Team& team, const Pair& near, float shift) {
    const Pair sums = team.template far<1>(near, AddPairs{});
    // What rounding, or the number chosen, has left of the mean.
    const float left = p.centred ? sums.a * p.share : 0.0f;
    const float variance = fma(-left, left, sums.b * p.share);
    const float factor = rsqrt((variance < 0.0f ? 0.0f : variance) + p.eps);  // NaN stays
    return {shift, factor, -left * factor};
  }

  // affine: of a normalised element, and of what is beside it.
  template <class T, class Team, class Tile, int Count, class Affine>
  static OPDOCK_DEVICE void write(Team& team, Tile& tile, const Row<T>& row, const Moments& of,
                                  const Sides<T, Count>& sides, Affine affine) {
    team.map_beside(
        row.out,
        [&](int64_t, bool, auto& x, const auto& beside) {
          constexpr int kSize = piece_size<decltype(x)>;
          float value[kSize], side[Count][kSize];
          to_floats(x, value);
          OPDOCK_UNROLL
          for (int i = 0; i < Count; ++i) to_floats(beside[i], side[i]);
          OPDOCK_UNROLL
          for (int j = 0; j < kSize; ++j) {
            float at[Count];
            OPDOCK_UNROLL
            for (int i = 0; i < Count; ++i) at[i] = side[i][j];
            value[j] = affine(fma(value[j] - of.mean, of.factor, of.rest), at);
          }
          from_floats(value, &x);
        },
        tile, sides);
  }
};

OPDOCK_ROW_KERNELS(Norm<false>)
namespace add {
OPDOCK_ROW_KERNELS(Norm<true>)
}

}  // namespace layernorm
