// The parameters of a formula, as an op's schema declares them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "formula/formula.h"
#include "schema/schema.h"

namespace opdock {

// Throws Error for a parameter of a type that formulas do not take.
std::vector<formula::Parameter> formula_parameters(const Schema& schema);

}  // namespace opdock
