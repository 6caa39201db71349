// Says which nodes of an exact graph need no rounding, for the interpreter and compiled CPU code.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formula/graph.h"

namespace opdock::formula {

// Returns whether the node's result, before it is rounded, is a number of its type: it is one of
// arguments that are.
bool is_rounded(const Graph& graph, Id id);

}  // namespace opdock::formula
