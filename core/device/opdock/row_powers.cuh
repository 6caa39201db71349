// Sums of exponentials of a row's elements, relative to the largest element, so that none is
// infinite.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/row_team.cuh"

namespace opdock {

// Returns what is subtracted from each element, if `most` is the largest. For -infinity it is 0, so
// that every power is 0 (or NaN, of a NaN), and not the NaN of (-inf) - (-inf).
OPDOCK_DEVICE float base_of(float most) {
  return most == -infinity() ? 0.0f : most;
}

// Merges parts of a row, of which Partial::a is the largest element, and b the sum of e^(unit *
// (element - base_of(a))).
struct AddPowers {
  float unit = 1.0f;

  // Returns the sum of a part relative to `all`, the largest element of all parts.
  OPDOCK_DEVICE float moved(const Partial& part, float all) const {
    return part.b * exp((part.a - base_of(all)) * unit);
  }
  OPDOCK_DEVICE Partial operator()(const Partial& part, const Lanes& of) const {
    const float all = of.most(part.a);
    return {all, of.sum(moved(part, all))};
  }
};

}  // namespace opdock
