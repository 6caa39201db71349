// One operation on single numbers, in float64 and int64: what evaluate() does for each element.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "formula/graph.h"

namespace opdock::formula {

// Returns the result, of type `type`, of an operation that is no reduction, on operands of the type
// `operands`. Integers wrap to their type; floats are not rounded.
Value evaluate_element(Op op, Type type, Type operands, const std::array<Value, 3>& args);

// Returns the value converted between types as a C++ cast does: towards 0, integers wrapping. A
// float that no int64 holds becomes the nearest int64 first, and NaN becomes 0; PyTorch leaves
// both undefined. A float that becomes a float stays as it is.
Value convert_element(Value value, Type from, Type to);

// Returns the integer wrapped to its type.
int64_t wrap_element(Type type, int64_t value);

// Returns the number of a float type that is nearest to `value`, of two the even one.
double round_element(Type type, double value);

}  // namespace opdock::formula
