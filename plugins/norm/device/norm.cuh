// Layer and rms norm along the last dimension, with the addition before them; in float.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moments.cuh"

namespace layernorm {

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

template <bool Add>
struct Norm {
  using Params = layernorm::Params;
  static constexpr int kTiles = Add ? 2 : 1;
  static constexpr bool kBeside = true;

  template <class T, class Team>
  static OPDOCK_DEVICE void run(const Params& p, Team& team) {
    const Row<T> row(p, team);
    team.take(row.x, p.length);
    T first = first_of(p.centred, team, row.x);
    auto tile = team.load(row.x, T{});
    if constexpr (Add) {
      const float other = to_float(first_of(p.centred, team, row.residual));
      first = from_float<T>(to_float(first) + other);
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
    const float shift = shift_of(p, team, tile, first);
    Partial near = {};
    team.each(
        [&](int64_t, bool, const auto& x) {
          float deviation[piece_size<decltype(x)>];
          to_floats(x, deviation);
          OPDOCK_UNROLL
          for (float& each : deviation) {
            each -= shift;
            near.a += each;
            near.b = fma(each, each, near.b);
          }
        },
        tile);
    near = {team.template near<Sum>(near.a), team.template near<Sum>(near.b)};
    const auto moments = [&] {
      return moments_of(p, team.template far<1>(near, AddPartials{}), shift);
    };
    const T* const weight = static_cast<const T*>(p.weight);
    const T* const bias = static_cast<const T*>(p.bias);
    if (weight && bias) {
      const auto sides = team.ask(weight, bias);
      const Moments of = moments();
      team.map_beside(
          row.out,
          [&](int64_t, bool, auto& x, const auto& beside) {
            write(of, &x, beside, [](float y, const float (&s)[2]) { return fma(y, s[0], s[1]); });
          },
          tile, sides);
    } else if (weight || bias) {
      const auto sides = team.ask(weight ? weight : bias);
      const Moments of = moments();
      const bool by = weight;
      team.map_beside(
          row.out,
          [&](int64_t, bool, auto& x, const auto& beside) {
            write(of, &x, beside,
                  [&](float y, const float (&s)[1]) { return by ? y * s[0] : y + s[0]; });
          },
          tile, sides);
    } else {
      const Moments of = moments();
      team.map(row.out, [&](int64_t, bool, auto& x) { normalise(of, &x); }, tile);
    }
  }

 private:
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
