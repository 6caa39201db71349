// Gradients of formulas, by differentiating their graphs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "formula/graph.h"

namespace opdock::formula {

// The gradients of a graph's inputs, as a graph of their own.
struct Gradient {
  // Its inputs are those of the graph, in their order and under their names, and after them one for
  // each result: the gradient of that result ("grad", or "grad_0", "grad_1", …, of the result's
  // type). Its scalars are those of the graph. Its results are the gradients, of the inputs' types.
  Graph graph;
  // For each result of `graph` the number of the input whose gradient it is. The result has the
  // broadcast shape: the caller sums it over the dimensions in which the input was broadcast.
  std::vector<size_t> inputs;
};

// Differentiates the graph for those inputs of `wanted` (numbers of inputs) that are floats. The
// gradient of an input on which no result depends smoothly is 0. Results that are not floats have
// no gradient; their "grad" input exists and is not used.
//
// Simplified: nothing is computed that no gradient needs, and terms that are known to be 0 do not
// appear (so that infinity times 0 is no NaN). Values of the forward pass are computed again from
// the inputs.
//
// Throws Error, which names the operation, if a needed derivative does not exist.
Gradient differentiate(const Graph& graph, const std::vector<size_t>& wanted);

}  // namespace opdock::formula
