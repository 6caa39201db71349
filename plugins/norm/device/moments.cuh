// The mean and the deviation of a row, combined piece by piece. All arithmetic is in float.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "norm_params.cuh"
#include "opdock/device.cuh"
#include "opdock/row_team.cuh"

namespace layernorm {

using namespace opdock;
using opdock::fma;  // these declarations win over the compiler's own functions
using opdock::rsqrt;

// Returns the first element of a row of 16-bit elements, and 0 for 32-bit ones and rms norms. Any
// of the elements may stand in for the mean: the digits that the sum of squares then loses matter
// less than the result's rounding.
template <class T, class Team>
OPDOCK_DEVICE T first_of(int centred, const Team& team, const T* row) {
  return sizeof(T) == sizeof(float) || !centred ? T{} : team.first(row);
}

// Returns a number near the mean of the elements in `tile`, and fills the tile with it where it has
// no elements; for rms norms returns 0. first: the row's first element. Uses the team's reduction
// 0.
template <class T, class Params, class Team, class Tile>
OPDOCK_DEVICE float approximate_mean(const Params& p, Team& team, Tile& tile, T first) {
  if (!p.centred) return 0.0f;
  if constexpr (sizeof(T) == sizeof(float)) {
    float sum = 0.0f;
    team.each(
        [&](int64_t, bool, const auto& x) {
          OPDOCK_UNROLL
          for (int j = 0; j < piece_size<decltype(x)>; ++j) sum += x.get(j);
        },
        tile);
    sum = team.template warp_reduce<Sum>(sum);
    first = team.template team_reduce<0>({sum, 0.0f}, AddPartials{}).a * p.share;
  }
  team.fill(first, &tile);
  return to_float(first);
}

// sums: the sum of the deviations from `shift`, and that of their squares.
template <class Params>
OPDOCK_DEVICE Moments moments_of(const Params& p, const Partial& sums, float shift) {
  // The part of the mean that `shift` lacks, because it is rounded or is just one of the elements.
  const float left = p.centred ? sums.a * p.share : 0.0f;
  const float variance = fma(-left, left, sums.b * p.share);
  const float factor = rsqrt((variance < 0.0f ? 0.0f : variance) + p.eps);  // NaN stays NaN
  return {shift, factor, -left * factor};
}

}  // namespace layernorm
