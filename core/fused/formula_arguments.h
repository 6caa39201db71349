// The arguments of a call as formulas see them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "formula/formula.h"
#include "formula/type.h"
#include "opdock/plugin.h"

namespace opdock {

// Returns the type of a formula's numbers with that dtype; none if formulas do not have it.
std::optional<formula::Type> type_of(opdock_dtype dtype);
opdock_dtype dtype_of(formula::Type type);

// Returns the argument as the formula sees it. Throws Error for a dtype that formulas do not have.
formula::Argument argument_of(const formula::Parameter& param, const opdock_value& value);

// Appends an argument to a call's key. Two calls with equal keys use the same instance.
void append_key(const formula::Argument& argument, std::string* key);

}  // namespace opdock
