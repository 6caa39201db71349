// The mean and the deviation of a row, of one piece of it after the other; in float.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "norm_params.cuh"
#include "opdock/device.cuh"
#include "opdock/row_team.cuh"

namespace layernorm {

using namespace opdock;
using opdock::fma;  // named, these win over the compiler's own
using opdock::rsqrt;

// The first element of a row of 16 bits. Any number among the elements will do for a mean: with it,
// what the squares lose to the mean stays below what the result's rounding loses.
template <class T, class Team>
OPDOCK_DEVICE T first_of(int centred, const Team& team, const T* row) {
  return sizeof(T) == sizeof(float) || !centred ? T{} : team.first(row);
}

// A number near the mean of the elements that `tile` has, which stands from then on where it has
// none; of rms norms, 0. first: of the row. Takes the team's reduction 0.
template <class T, class Params, class Team, class Tile>
OPDOCK_DEVICE float shift_of(const Params& p, Team& team, Tile& tile, T first) {
  if (!p.centred) return 0.0f;
  if constexpr (sizeof(T) == sizeof(float)) {
    float sum = 0.0f;
    team.each(
        [&](int64_t, bool, const auto& x) {
          OPDOCK_UNROLL
          for (int j = 0; j < piece_size<decltype(x)>; ++j) sum += x.get(j);
        },
        tile);
    sum = team.template near<Sum>(sum);
    first = team.template far<0>({sum, 0.0f}, AddPartials{}).a * p.share;
  }
  team.fill(first, &tile);
  return to_float(first);
}

// sums: of the deviations from `shift`, and of their squares.
template <class Params>
OPDOCK_DEVICE Moments moments_of(const Params& p, const Partial& sums, float shift) {
  // What rounding, or the number chosen, has left of the mean.
  const float left = p.centred ? sums.a * p.share : 0.0f;
  const float variance = fma(-left, left, sums.b * p.share);
  const float factor = rsqrt((variance < 0.0f ? 0.0f : variance) + p.eps);  // NaN stays
  return {shift, factor, -left * factor};
}

}  // namespace layernorm
