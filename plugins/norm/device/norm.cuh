// Layer and rms norm along the last dimension, with the additions before them. All arithmetic is in
// float.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moments.cuh"

namespace layernorm {

template <class T>
struct Row {
  const T* x;
  const T* residual;  // null: no residual
  const T* input_bias;
  T* out;
  T* sum;

  template <class Team>
  OPDOCK_DEVICE Row(const Params& p, const Team& team) {
    long long offset[4];
    p.rows.locate<Team::kPlain>(team.row(), offset);
    x = static_cast<const T*>(p.x) + offset[0];
    residual = p.residual ? static_cast<const T*>(p.residual) + offset[1] : nullptr;
    input_bias = static_cast<const T*>(p.input_bias);
    out = static_cast<T*>(p.out) + offset[2];
    sum = static_cast<T*>(p.sum) + offset[3];
  }
};

// kAdded: 0, 1 (residual is added) or 2 (input_bias too).
template <int kAdded>
struct Norm {
  using Params = layernorm::Params;
  static constexpr int kTiles = kAdded > 0 ? 2 : 1;
  static constexpr bool kHasOperands = true;

  template <class T, class Team>
  static OPDOCK_DEVICE void run(const Params& p, Team& team) {
    const Row<T> row(p, team);
    team.take(row.x, p.length);
    T first = first_of(p.centred, team, row.x);
    auto tile = team.load(row.x, T{});
    if constexpr (kAdded > 0) {
      float other = to_float(first_of(p.centred, team, row.residual));
      if constexpr (kAdded > 1) other += to_float(first_of(p.centred, team, row.input_bias));
      first = from_float<T>(to_float(first) + other);
      // A sum in place would replace the first element before all have read it.
      if (p.sum == p.x || p.sum == p.residual) team.sync();
      // The sum is normalised as it is stored, that is, rounded.
      const auto residual = team.load(row.residual, T{});
      if constexpr (kAdded > 1)
        add_up(team, row, tile, residual, team.load(row.input_bias, T{}));
      else
        team.map(row.sum, Add(), tile, residual);
      tile = team.reload(tile, row.sum);
    }
    const float shift = approximate_mean(p, team, tile, first);
    Partial partial = {};
    team.each(
        [&](int64_t, bool, const auto& x) {
          float deviation[piece_size<decltype(x)>];
          to_floats(x, deviation);
          OPDOCK_UNROLL
          for (float& each : deviation) {
            each -= shift;
            partial.a += each;
            partial.b = fma(each, each, partial.b);
          }
        },
        tile);
    partial = {team.template warp_reduce<Sum>(partial.a),
               team.template warp_reduce<Sum>(partial.b)};
    const auto moments = [&] {
      return moments_of(p, team.template team_reduce<1>(partial, AddPartials{}), shift);
    };
    const T* const weight = static_cast<const T*>(p.weight);
    const T* const bias = static_cast<const T*>(p.bias);
    if (weight && bias) {
      const auto operands = team.prefetch_operands(weight, bias);
      const Moments of = moments();
      team.map_with_operands(
          row.out,
          [&](int64_t, bool, auto& x, const auto& pieces) {
            write(of, &x, pieces, [](float y, const float (&s)[2]) { return fma(y, s[0], s[1]); });
          },
          tile, operands);
    } else if (weight || bias) {
      const auto operands = team.prefetch_operands(weight ? weight : bias);
      const Moments of = moments();
      const bool by = weight;
      team.map_with_operands(
          row.out,
          [&](int64_t, bool, auto& x, const auto& pieces) {
            write(of, &x, pieces,
                  [&](float y, const float (&s)[1]) { return by ? y * s[0] : y + s[0]; });
          },
          tile, operands);
    } else {
      const Moments of = moments();
      team.map(row.out, [&](int64_t, bool, auto& x) { normalise(of, &x); }, tile);
    }
  }

 private:
  struct Add {
    template <class Piece, class... Others>
    OPDOCK_DEVICE void operator()(int64_t, bool, Piece& x, const Others&... others) const {
      float sum[piece_size<Piece>];
      to_floats(x, sum);
      (add(others, sum), ...);
      from_floats(sum, &x);
    }
    template <class Piece, int Size>
    static OPDOCK_DEVICE void add(const Piece& other, float (&sum)[Size]) {
      float value[Size];
      to_floats(other, value);
      OPDOCK_UNROLL
      for (int j = 0; j < Size; ++j) sum[j] += value[j];
    }
  };
  // Adds up the row. Does not store an unwanted sum where the team holds the row.
  template <class T, class Team, class Tile, class... Others>
  static OPDOCK_DEVICE void add_up(Team& team, const Row<T>& row, Tile& tile,
                                   const Others&... others) {
    if (Team::kHolds && row.sum == row.out)
      team.each(Add(), tile, others...);
    else
      team.map(row.sum, Add(), tile, others...);
  }
  // affine: maps a normalised element, and the elements of weight and bias in its column, to the
  // result.
  template <class Piece, int Count, class Affine>
  static OPDOCK_DEVICE void write(const Moments& of, Piece* x, const Piece (&pieces)[Count],
                                  Affine affine) {
    constexpr int kSize = piece_size<Piece>;
    float value[kSize], operand[Count][kSize];
    to_floats(*x, value);
    OPDOCK_UNROLL
    for (int i = 0; i < Count; ++i) to_floats(pieces[i], operand[i]);
    OPDOCK_UNROLL
    for (int j = 0; j < kSize; ++j) {
      float at[Count];
      OPDOCK_UNROLL
      for (int i = 0; i < Count; ++i) at[i] = operand[i][j];
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

OPDOCK_ROW_KERNELS(Norm<0>)
namespace add {
OPDOCK_ROW_KERNELS(Norm<1>)
}
namespace add_bias {
OPDOCK_ROW_KERNELS(Norm<2>)
}

}  // namespace layernorm
