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
  // each result: the gradient of that result, of the result's type, or the part of it. Its name is
  // "grad", or "grad_0", "grad_1", …, with "grad_" before it if an input has that name. It has the
  // shape to which all inputs are broadcast, with 1 as the last dimension if the result has no
  // columns, as result_shape() (space.h) says. Its scalars are those of the graph. Its results are
  // the gradients, of the inputs' types.
  Graph graph;
  // For each result of `graph` the number of the input whose gradient it is. Inputs that are parts
  // of a tensor have gradients that are the parts of its gradient, if all of them are wanted.
  //
  // The caller sums the result over the dimensions in which the input was broadcast. A result that
  // is the same in the whole row has no last dimension, as in any graph: it is the gradient of each
  // column, to which the caller broadcasts it first; but of an input without dimensions it is
  // already the sum along the row, and so it is of one that is the same in the whole row
  // (Input::is_per_row).
  std::vector<size_t> inputs;
};

// An input whose gradient is wanted, and how that is summed over the dimensions in which the input
// was broadcast.
struct Wanted {
  size_t input = 0;           // its number
  bool over_rows = false;     // it has one row, or no dimensions but the last
  bool over_columns = false;  // it has one column, or no dimensions
  // It has several rows, but fewer than the graph. Its gradient has all rows, in the type that is
  // computed with: the caller sums over some of them.
  bool is_partial = false;
};

// Differentiates the graph as differentiate() does, with gradients of the shapes of their inputs.
// Gradients that are summed over rows are sums of the graph (Graph::output()): column by column for
// a bias, and a total for a number. A gradient that is summed over columns alone is the same in the
// whole row, and has no last dimension. The results are no parts of others: an input that is a part
// of a tensor has a gradient of its own, of the part's shape. Throws Error also for an input that
// is no float.
Graph summed_gradients(const Graph& graph, const std::vector<Wanted>& wanted);

// Differentiates the graph for those inputs of `wanted` (numbers of inputs) that are floats. The
// gradient of an input on which no result depends smoothly is 0: bools, integers and results that
// change in steps (floor, sign, …) pass nothing on. Results that are not floats have no gradient;
// their "grad" input exists and is not used.
//
// Simplified: nothing is computed that no gradient needs, and terms that are known to be 0 do not
// appear (so that infinity times 0 is no NaN). Values of the forward pass are computed again from
// the inputs.
//
// Throws Error if an input of that number does not exist or is grouped, and if the gradients exceed
// the limits of a graph.
Gradient differentiate(const Graph& graph, const std::vector<size_t>& wanted);

}  // namespace opdock::formula
