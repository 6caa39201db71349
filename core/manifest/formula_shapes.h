// The shape rules of ops that are formulas, where plugin.toml declares none.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "formula/formula.h"
#include "schema/schema.h"

namespace opdock {

// Returns a shape rule for each fresh result: the shape to which the formula's tensors are
// broadcast, without its last dimension if the result is the same in the whole row; and the dtype
// of the tensor that decides about the result's. They are right for calls whose tensors have one
// dtype, and in which the choices do not change what the results are. formula: over
// formula_parameters(schema).
std::vector<std::string> common_shape_rules(const Schema& schema, const formula::Formula& formula);

}  // namespace opdock
