// Sums of powers of a row's elements, relative to the largest of them, so that none is infinite.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/row_team.cuh"

namespace opdock {

// What is subtracted from each element. Without a finite one every power is then 0 (or NaN, of a
// NaN), not the NaN of (-inf) - (-inf).
OPDOCK_DEVICE float base_of(float most) {
  return most == -infinity() ? 0.0f : most;
}

// Of parts of a row: a, the largest element; b, the sum of e^(unit * (element - base_of(a))).
struct AddPowers {
  float unit = 1.0f;

  // The sum, once the largest element is `all`.
  OPDOCK_DEVICE float moved(const Partial& part, float all) const {
    return part.b * exp((part.a - base_of(all)) * unit);
  }
  OPDOCK_DEVICE Partial operator()(const Partial& part, const Lanes& of) const {
    const float all = of.most(part.a);
    return {all, of.sum(moved(part, all))};
  }
};

}  // namespace opdock
