// The gradients of the norms: that of x row by row, those of weight and bias as sums over rows. All
// arithmetic is in float.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moments.cuh"
#include "opdock/column_sums.cuh"

namespace layernorm::backward {

// With y the normalised elements, r = 1 / sqrt(variance + eps) and g = grad * weight, the gradient
// of x is r * (g - mean(g) - y * mean(g * y)); for rms norms without mean(g).
struct Backward {
  using Params = BackwardParams;
  static constexpr int kTiles = 2;
  static constexpr bool kHasOperands = false;

  template <class T, class Team>
  static OPDOCK_DEVICE void run(const Params& p, Team& team) {
    long long offset[4];
    p.rows.locate<Team::kPlain>(team.row(), offset);
    const T* const row = static_cast<const T*>(p.x) + offset[0];
    const T* const grads = static_cast<const T*>(p.grad) + offset[1];
    const T* const more = static_cast<const T*>(p.grad_sum) + offset[3];
    team.take(row, p.length);
    const T first = first_of(p.centred, team, row);
    auto x = team.load(row, T{});
    auto grad = team.load(grads, T{});
    const float shift = approximate_mean(p, team, x, first);

    // Sums of the deviations from shift and of their squares; of g, and of g times the deviations.
    Partial of_x = {}, of_grad = {};
    team.each(
        [&](int64_t column, bool here, auto& slopes, const auto& piece) {
          constexpr int kSize = piece_size<decltype(piece)>;
          float deviation[kSize], g[kSize];
          to_floats(piece, deviation);
          weigh<T, Team>(p, column, here, slopes, g);
          if constexpr (kWeighed<T, Team>) from_floats(g, &slopes);
          OPDOCK_UNROLL
          for (int j = 0; j < kSize; ++j) {
            deviation[j] -= shift;
            of_x.a += deviation[j];
            of_x.b = fma(deviation[j], deviation[j], of_x.b);
            of_grad.a += g[j];
            of_grad.b = fma(g[j], deviation[j], of_grad.b);
          }
        },
        grad, x);
    of_x = {team.template warp_reduce<Sum>(of_x.a), team.template warp_reduce<Sum>(of_x.b)};
    of_grad = {team.template warp_reduce<Sum>(of_grad.a),
               team.template warp_reduce<Sum>(of_grad.b)};
    of_x = team.template team_reduce<1>(of_x, AddPartials{});
    of_grad = team.template team_reduce<2>(of_grad, AddPartials{});
    const Moments of = moments_of(p, of_x, shift);
    if (p.moments && team.is_leader()) p.moments[team.row()] = of;

    const float mean = p.centred ? of_grad.a * p.share : 0.0f;
    const float mean_of_product = fma(of_grad.b, of.factor, of_grad.a * of.rest) * p.share;
    // y is deviation * r + rest.
    const float slope = -of.factor * mean_of_product;
    const float by_deviation = slope * of.factor, constant = fma(slope, of.rest, -of.factor * mean);
    team.map(
        static_cast<T*>(p.out) + offset[2],
        [&](int64_t column, bool here, auto& piece, const auto& slopes) {
          constexpr int kSize = piece_size<decltype(piece)>;
          float value[kSize], g[kSize];
          to_floats(piece, value);
          if constexpr (kWeighed<T, Team>)
            to_floats(slopes, g);
          else
            weigh<T, Team>(p, column, here, slopes, g);
          OPDOCK_UNROLL
          for (int j = 0; j < kSize; ++j) {
            const float rest = fma(value[j] - of.mean, by_deviation, constant);
            value[j] = fma(g[j], of.factor, rest);
          }
          if (p.grad_sum && here) {
            float added[kSize];
            load_beside<T, Team>(more, p.length, column, &piece);
            to_floats(piece, added);
            OPDOCK_UNROLL
            for (int j = 0; j < kSize; ++j) value[j] += added[j];
          }
          from_floats(value, &piece);
        },
        x, grad);
  }

 private:
  // Whether g replaces grad in the tile: where floats are held, which loses no precision.
  template <class T, class Team>
  static constexpr bool kWeighed = Team::kHolds && sizeof(T) == sizeof(float);

  template <class T, class Team, class Piece>
  static OPDOCK_DEVICE void load_beside(const T* row, int64_t length, int64_t column, Piece* out) {
    load_operand(row, column, length, Team::kPlain ? 0 : misalignment(row + column), out);
  }
  // Computes grad * weight; 0 where there are no elements.
  template <class T, class Team, class Piece>
  static OPDOCK_DEVICE void weigh(const Params& p, int64_t column, bool here, const Piece& grad,
                                  float (&out)[piece_size<Piece>]) {
    to_floats(grad, out);
    if (!p.weight || !here) return;
    Piece weight;
    load_beside<T, Team>(static_cast<const T*>(p.weight), p.length, column, &weight);
    float by[piece_size<Piece>];
    to_floats(weight, by);
    OPDOCK_UNROLL
    for (int j = 0; j < piece_size<Piece>; ++j) out[j] *= by[j];
  }
};

OPDOCK_ROW_KERNELS(Backward)

template <class T>
OPDOCK_KERNEL_BLOCKS(kColumnThreads, sizeof(T) == 4 ? 4 : 3)
weight_sums(WeightParams p) {
  for_column_chunks<T, TensorList<0, 1>, TensorList<>, TensorList<>, 2>(
      p.at, p.sums,
      [&](int64_t row, const Packed<T>(&in)[2], const Packed<T>(&)[1], Packed<T>(&)[1],
          float (&terms)[2][vector_size<T>]) {
        const Moments of = p.moments[row];
        to_floats(in[0], terms[1]);
        to_floats(in[1], terms[0]);
        OPDOCK_UNROLL
        for (int k = 0; k < vector_size<T>; ++k)
          terms[0][k] = fma(terms[0][k] - of.mean, of.factor, of.rest) * terms[1][k];
      });
}

OPDOCK_KERNEL(kTotalThreads)
totals(ColumnTotals p) {
  column_totals(p);
}

}  // namespace layernorm::backward
