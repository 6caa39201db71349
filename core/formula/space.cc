// SPDX-License-Identifier: Apache-2.0
#include "formula/space.h"

#include <algorithm>
#include <cstdlib>
#include <string>

namespace opdock::formula {
namespace {

std::string to_text(const int64_t* shape, int rank) {
  std::string text = "[";
  for (int i = 0; i < rank; ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

bool has_numbers_of_places(const Graph& graph) {
  for (const Node& node : graph.nodes())
    if (node.op == Op::kRow || node.op == Op::kColumn || node.op == Op::kColumns) return true;
  return false;
}

// A dimension of the space, with the strides of the inputs and then of the results.
struct Dim {
  int64_t size = 1;
  std::vector<int64_t> strides;
};

// Returns whether `inner` and `outer` are one dimension in every tensor.
bool can_merge(const Dim& outer, const Dim& inner) {
  for (size_t t = 0; t < inner.strides.size(); ++t)
    if (outer.strides[t] != inner.strides[t] * inner.size) return false;
  return true;
}

// Merges neighbours of [first, dims.size()).
void merge(std::vector<Dim>* dims) {
  std::vector<Dim> merged;
  for (Dim& dim : *dims) {
    if (!merged.empty() && can_merge(merged.back(), dim)) {
      dim.size *= merged.back().size;
      merged.back() = std::move(dim);
    } else {
      merged.push_back(std::move(dim));
    }
  }
  *dims = std::move(merged);
}

// Checks that each reduction goes over as many columns as the space has: an operand with one column
// would otherwise count as if it were repeated.
void check_reductions(const Graph& graph, const std::vector<Operand>& inputs, int64_t columns) {
  if (columns == 1) return;
  // Whether the values of a node, which differ between columns, come from a whole row.
  std::vector<bool> is_whole(graph.nodes().size(), false);
  for (Id id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    const auto at = static_cast<size_t>(id);
    if (node.op == Op::kColumn) is_whole[at] = true;
    if (node.op == Op::kInput) {
      const Operand& input = inputs[node.index];
      is_whole[at] = input.rank > 0 && input.shape[input.rank - 1] == columns;
    }
    for (const Id arg : node.args)
      if (arg != kNone && is_whole[static_cast<size_t>(arg)]) is_whole[at] = true;
    if (!is_reduction(node.op)) continue;
    if (!is_whole[static_cast<size_t>(node.args[0])])
      throw Error(std::string(operation(node.op).name) + ": found an argument with 1 column, " +
                  "wanted one with the " + std::to_string(columns) +
                  " columns of the formula; reduce it in a formula of its own");
    is_whole[at] = false;
  }
}

int64_t product(const int64_t* shape, size_t rank) {
  int64_t count = 1;
  for (size_t d = 0; d < rank; ++d) count *= shape[d];
  return count;
}

bool is_contiguous(const Operand& x) {
  if (product(x.shape, static_cast<size_t>(x.rank)) == 0) return true;
  int64_t step = 1;
  for (int d = x.rank - 1; d >= 0; --d) {
    if (x.shape[d] != 1 && x.strides[d] != step) return false;
    step *= x.shape[d];
  }
  return true;
}

// Checks that each grouped input has a number for each of equal groups of a contiguous tensor's
// elements.
void check_groups(const Graph& graph, const std::vector<Operand>& inputs,
                  const std::vector<int64_t>& shape) {
  const int64_t all = product(shape.data(), shape.size());
  const Input* first = nullptr;
  int64_t groups = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& input = graph.inputs()[i];
    if (!input.is_grouped) continue;
    const int64_t own = product(inputs[i].shape, static_cast<size_t>(inputs[i].rank));
    const std::string found = "\"" + input.name + "\": found " + std::to_string(own) + " numbers";
    if (all != 0 && (own == 0 || all % own != 0))
      throw Error(found + ", wanted one for each of equal groups of the " + std::to_string(all) +
                  " elements of the other tensors; pass a divisor of these");
    if (first != nullptr && own != groups)
      throw Error(found + ", wanted " + std::to_string(groups) + ", as \"" + first->name +
                  "\" has");
    if (!is_contiguous(inputs[i]))
      throw Error("\"" + input.name + "\": found gaps between the numbers of groups, wanted a " +
                  "contiguous tensor");
    first = &input;
    groups = own;
  }
  if (first == nullptr) return;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Operand& x = inputs[i];
    if (graph.inputs()[i].is_grouped || x.rank == 0) continue;
    const bool is_whole = std::equal(x.shape, x.shape + x.rank, shape.begin(), shape.end());
    if (!is_whole || !is_contiguous(x))
      throw Error("\"" + graph.inputs()[i].name + "\": found the shape " +
                  to_text(x.shape, x.rank) + (is_whole ? " with gaps" : "") + ", wanted " +
                  to_text(shape.data(), static_cast<int>(shape.size())) +
                  ", contiguous, because the groups of \"" + first->name +
                  "\" are counted in row-major order");
  }
}

bool has_groups(const Graph& graph) {
  return std::any_of(graph.inputs().begin(), graph.inputs().end(),
                     [](const Input& input) { return input.is_grouped; });
}

// The space of contiguous tensors and grouped ones.
Space make_grouped_space(const Graph& graph, const std::vector<Operand>& inputs,
                         const std::vector<Operand>& results, int64_t elements) {
  Space space;
  space.inputs.resize(inputs.size());
  space.results.resize(results.size());
  space.rows = elements == 0 ? 0 : 1;
  space.columns = elements == 0 ? 0 : 1;
  if (elements == 0) return space;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (graph.inputs()[i].is_grouped)
      space.rows = product(inputs[i].shape, static_cast<size_t>(inputs[i].rank));
  space.columns = elements / space.rows;
  // Groups of one element are a row of elements.
  const bool is_flat = space.columns == 1;
  if (is_flat) std::swap(space.rows, space.columns);
  space.ndim = is_flat ? 0 : 1;
  space.size[0] = space.rows;
  const Steps whole = {{is_flat ? 0 : space.columns}, 1};
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (graph.inputs()[i].is_grouped)
      space.inputs[i] = is_flat ? whole : Steps{{1}, 0};
    else if (inputs[i].rank > 0)
      space.inputs[i] = whole;
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (!is_contiguous(results[i]))
      throw Error("result " + std::to_string(i) + ": found gaps between its elements, wanted a " +
                  "contiguous tensor, because the groups are counted in row-major order");
    space.results[i] = whole;
  }
  return space;
}

}  // namespace

std::vector<int64_t> broadcast_shape(const Graph& graph, const std::vector<Operand>& inputs) {
  std::vector<int64_t> shape;
  std::vector<size_t> from;  // for each dimension, the input that it is from
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (graph.inputs()[i].is_grouped) continue;
    const Operand& input = inputs[i];
    const auto rank = static_cast<size_t>(input.rank);
    const std::string name = "\"" + graph.inputs()[i].name + "\"";
    if (input.rank > kMaxDims)
      throw Error(name + ": found " + std::to_string(input.rank) + " dimensions, wanted at most " +
                  std::to_string(kMaxDims));
    if (rank > shape.size()) {
      from.insert(from.begin(), rank - shape.size(), i);
      shape.insert(shape.begin(), rank - shape.size(), 1);
    }
    for (size_t d = 0; d < rank; ++d) {
      const int64_t size = input.shape[d];
      const size_t at = shape.size() - rank + d;
      if (size == 1 || size == shape[at]) continue;
      if (shape[at] != 1) {
        const Operand& other = inputs[from[at]];
        throw Error(name + ": found the shape " + to_text(input.shape, input.rank) +
                    ", wanted one that can be broadcast with " + to_text(other.shape, other.rank) +
                    " of \"" + graph.inputs()[from[at]].name + "\"");
      }
      shape[at] = size;
      from[at] = i;
    }
  }
  check_groups(graph, inputs, shape);
  return shape;
}

std::vector<int64_t> result_shape(const Graph& graph, size_t i, const std::vector<int64_t>& shape) {
  std::vector<int64_t> out = shape;
  switch (graph.output(i)) {
    case Output::kTotal:
      return {};
    case Output::kColumnSums:
      if (!out.empty()) out.erase(out.begin(), out.end() - 1);
      return out;
    default:
      if (!graph.has_columns(i) && !out.empty()) out.pop_back();
      return out;
  }
}

Space make_space(const Graph& graph, const std::vector<Operand>& inputs,
                 const std::vector<Operand>& results) {
  const std::vector<int64_t> shape = broadcast_shape(graph, inputs);
  const auto rank = static_cast<int>(shape.size());
  if (has_groups(graph))
    return make_grouped_space(graph, inputs, results, product(shape.data(), shape.size()));
  // Sums over rows need the rows, and their partial sums the number of them, whatever the strides.
  const bool keeps_rows =
      graph.has_reductions() || graph.has_sums() || has_numbers_of_places(graph);
  if (graph.has_reductions()) check_reductions(graph, inputs, rank > 0 ? shape.back() : 1);
  std::vector<Dim> dims;
  for (int d = 0; d < rank; ++d) {
    Dim dim;
    dim.size = shape[static_cast<size_t>(d)];
    for (const Operand& input : inputs) {
      const int own = d - (rank - input.rank);
      dim.strides.push_back(own >= 0 && input.shape[own] != 1 ? input.strides[own] : 0);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const Operand& result = results[i];
      if (is_sum(graph.output(i))) {
        const bool has_step = graph.output(i) == Output::kColumnSums && d + 1 == rank;
        dim.strides.push_back(has_step && dim.size != 1 ? result.strides[0] : 0);
        continue;
      }
      // A result without columns has one dimension less, at its end.
      const bool is_column = d + 1 == rank && result.rank < rank;
      dim.strides.push_back(is_column || dim.size == 1 ? 0 : result.strides[d]);
    }
    // A dimension of one element is none, but the columns stay the columns.
    if (dim.size != 1 || (keeps_rows && d + 1 == rank)) dims.push_back(std::move(dim));
  }
  Dim columns;
  columns.strides.assign(inputs.size() + results.size(), 0);
  if (keeps_rows) {
    if (!dims.empty()) {
      columns = std::move(dims.back());
      dims.pop_back();
    }
    merge(&dims);
  } else {
    const size_t first = inputs.size();
    if (!results.empty())
      std::stable_sort(dims.begin(), dims.end(), [&](const Dim& a, const Dim& b) {
        return std::abs(a.strides[first]) > std::abs(b.strides[first]);
      });
    merge(&dims);
    if (!dims.empty()) {
      columns = std::move(dims.back());
      dims.pop_back();
    }
  }
  Space space;
  space.columns = columns.size;
  space.ndim = static_cast<int>(dims.size());
  space.inputs.resize(inputs.size());
  space.results.resize(results.size());
  const auto steps = [&](size_t t) -> Steps& {
    return t < inputs.size() ? space.inputs[t] : space.results[t - inputs.size()];
  };
  for (size_t t = 0; t < columns.strides.size(); ++t) steps(t).column = columns.strides[t];
  for (size_t d = 0; d < dims.size(); ++d) {
    space.size[d] = dims[d].size;
    space.rows *= dims[d].size;
    for (size_t t = 0; t < dims[d].strides.size(); ++t) steps(t).stride[d] = dims[d].strides[t];
  }
  return space;
}

}  // namespace opdock::formula
