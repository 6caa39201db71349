// Writes the operations of a graph as C++ expressions of device code (opdock/formula_math.cuh).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>

#include "formula/graph.h"

namespace opdock::formula {

// Returns the type of an element in memory: "half", "int8_t"; "uint8_t" for bool.
std::string element_type(Type type);
// Returns the type of a number that is computed: "float" for half, "int32_t" for int8_t.
std::string number_type(Type type);

// Whether all results are 16-bit floats, so that functions which are a little less accurate than
// float32 is serve as well: those in namespace `quick` of opdock/formula_math.cuh.
bool is_short(const Graph& graph);

// Returns the value of node `id` as an expression of its number_type(), which is rounded or wrapped
// as the node says. args: expressions of its arguments, which are in parentheses where needed.
// Leaves but constants have no expression.
std::string expression(const Graph& graph, Id id, const std::array<std::string, 3>& args);

// Returns a constant: "0.5f", "formula::infinity<float>()", "-3".
std::string constant_text(Type type, const Value& value);

// Returns a name for a node's variable that is unique in the graph and no keyword: "gate_3", "t_7".
std::string variable_name(const Graph& graph, Id id);

}  // namespace opdock::formula
