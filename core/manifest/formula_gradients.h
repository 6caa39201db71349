// Ops that are gradients of formulas: `gradient-of` in plugin.toml, and those that ops by a formula
// have without it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "manifest/manifest.h"

namespace opdock {

// A mistake in an op that has a `gradient-of`; the texts are empty if there is none.
struct GradientFault {
  std::string key;  // where in plugin.toml
  std::string found, wanted;
};

// Fills in an op that has a `gradient-of`: the formula, the parameters whose gradients it returns,
// and a doc and shape rules if it has none. Adds the declaration to the other op, if that declares
// no gradients. number: of the op, from 0.
GradientFault fill_in_gradient(Manifest* manifest, size_t number);

// Adds to each op by a formula that declares no gradients an op of its own, NAME_backward, and
// declares that its tensors' gradients are what this returns. Ops that write into a parameter, that
// take or return something else than floats, and those whose gradient would have the name of
// another op get none.
void add_formula_gradients(Manifest* manifest);

}  // namespace opdock
