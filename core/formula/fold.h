// Computes operations on constants, so that no kernel does.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>

#include "formula/graph.h"

namespace opdock::formula {

// Returns the result of an operation, of type `type`, on constants of the type `operands`; nullopt
// if it is left to the kernel: division by an integer 0, for example.
std::optional<Value> fold(Op op, Type type, Type operands, const std::array<Value, 3>& args);

// Returns the value converted from one type to another and rounded to compute_type(to). Floats that
// no int64 holds become the nearest one before they wrap to an integer type, and NaN becomes 0.
Value convert(Value value, Type from, Type to);

// Returns `value` rounded to a 16-bit float: to nearest, ties to even.
double round_to(Type type, double value);

}  // namespace opdock::formula
