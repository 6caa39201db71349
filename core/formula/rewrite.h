// Rewrites a graph for the generators of kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formula/graph.h"

namespace opdock::formula {

// Returns the graph with mean and logsumexp written as sums and maxima, so that a generator has
// fewer reductions to know. logsumexp subtracts the row's maximum. detach(x) becomes x.
Graph with_plain_reductions(const Graph& graph);

}  // namespace opdock::formula
