// A formula's parameters, as an op's schema declares them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "formula/formula.h"
#include "schema/schema.h"

namespace opdock {

// Throws Error for a parameter of a type that formulas do not take.
std::vector<formula::Parameter> formula_parameters(const Schema& schema);

// Checks that the formula's results are the schema's, and that some parameter is a tensor. Throws
// formula::Error.
void check_fit(const Schema& schema, const formula::Formula& formula);

// Returns the arguments of a common call, one for each parameter that formula_parameters() has:
// all optional tensors and numbers are there, tensors are of `type` and have rows, and choices are
// their defaults.
std::vector<formula::Argument> common_arguments(const Schema& schema, formula::Type type);

}  // namespace opdock
