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
    const T first = first_of(p, team, row);
    auto tile = team.load(row.x, T{});
    if constexpr (Add) {
      // A sum in place would replace the first element before all have read it.
      if (p.sum == p.x || p.sum == p.residual) team.sync();
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
    float shift = to_float(first);
    const Pair sums = deviations(p, team, tile, first, &shift);
    const T* const weight = static_cast<const T*>(p.weight);
    const T* const bias = static_cast<const T*>(p.bias);
    if (weight && bias) {
      const auto sides = team.ask(weight, bias);
      const Moments of = moments(p, team, sums, shift);
      team.map_beside(
          row.out,
          [&](int64_t, bool, auto& x, const auto& beside) {
            write(of, &x, beside, [](float y, const float (&s)[2]) { return fma(y, s[0], s[1]); });
          },
          tile, sides);
    } else if (weight || bias) {
      const auto sides = team.ask(weight ? weight : bias);
      const Moments of = moments(p, team, sums, shift);
      const bool by = weight;
      team.map_beside(
          row.out,
          [&](int64_t, bool, auto& x, const auto& beside) {
            write(of, &x, beside,
                  [&](float y, const float (&s)[1]) { return by ? y * s[0] : y + s[0]; });
          },
          tile, sides);
    } else {
      const Moments of = moments(p, team, sums, shift);
      team.map(row.out, [&](int64_t, bool, auto& x) { normalise(of, &x); }, tile);
    }
  }

 private:
  // The first element of a row of 16 bits. Any number among the elements will do for a mean: with
  // it, what the squares lose to the mean stays below what the result's rounding loses.
  template <class T, class Team>
  static OPDOCK_DEVICE T first_of(const Params& p, const Team& team, const Row<T>& row) {
    if (sizeof(T) == sizeof(float) || !p.centred) return T{};
    const T x = team.first(row.x);
    if constexpr (Add)
      return from_float<T>(to_float(x) + to_float(team.first(row.residual)));
    else
      return x;
  }
  // The sums of the deviations from *shift, a number near the mean, and of their squares; of the
  // threads that exchange registers. first, and *shift before: a row's first_of().
  template <class T, class Team, class Tile>
  static OPDOCK_DEVICE Pair deviations(const Params& p, Team& team, Tile& tile, T first,
                                       float* shift) {
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
  template <class Piece, int Count, class Affine>
  static OPDOCK_DEVICE void write(const Moments& of, Piece* x, const Piece (&beside)[Count],
                                  Affine affine) {
    constexpr int kSize = piece_size<Piece>;
    float value[kSize], side[Count][kSize];
    to_floats(*x, value);
    OPDOCK_UNROLL
    for (int i = 0; i < Count; ++i) to_floats(beside[i], side[i]);
    OPDOCK_UNROLL
    for (int j = 0; j < kSize; ++j) {
      float at[Count];
      OPDOCK_UNROLL
      for (int i = 0; i < Count; ++i) at[i] = side[i][j];
      value[j] = affine(fma(value[j] - of.mean, of.factor, of.rest), at);
    }
    from_floats(value, x);
  }
  template <class Piece>
  static OPDOCK_DEVICE void normalise(const Moments& of, Piece* x) {
    float value[piece_size<Piece>];
    to_floats(*x, value);
    OPDOCK_UNROLL
    for (float& each : value) each = fma(each - of.mean, of.factor, of.rest);
    from_floats(value, x);
  }
};

OPDOCK_ROW_KERNELS(Norm<false>)
namespace add {
OPDOCK_ROW_KERNELS(Norm<true>)
}

}  // namespace layernorm
