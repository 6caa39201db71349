// SPDX-License-Identifier: Apache-2.0
#include "formula/device_source.h"

#include <algorithm>
#include <vector>

#include "formula/device_element_kernels.h"
#include "formula/device_expressions.h"
#include "formula/device_row_kernels.h"

namespace opdock::formula {

int vector_elements(const Graph& graph, uint64_t repeated) {
  int most = 2;
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    if (graph.inputs()[i].has_columns() && (repeated >> i & 1) == 0)
      most = std::max(most, size_of(graph.inputs()[i].type));
  for (size_t i = 0; i < graph.results().size(); ++i) {
    const Node& node = graph[graph.results()[i]];
    const bool is_stored = graph.output(i) == Output::kWhole ||
                           ((node.extent & kPerColumn) != 0 && !is_sum(graph.output(i)));
    if (is_stored) most = std::max(most, size_of(node.type));
  }
  return 16 / most;
}

bool is_held(const Graph& graph, size_t input, uint64_t repeated) {
  return graph.inputs()[input].has_columns() && graph.inputs()[input].rank > 1 &&
         (repeated >> input & 1) == 0;
}

int exchanges(const Graph& graph) {
  int count = 0;
  for (const Node& node : graph.nodes())
    if (is_reduction(node.op)) count += node.op == Op::kArgmax || node.op == Op::kArgmin ? 2 : 1;
  return count;
}

std::string device_source(const Graph& graph, const DeviceShape& shape) {
  return device_template(graph, shape, "");
}

std::string device_template(const Graph& graph, const DeviceShape& shape, const std::string& name) {
  if (graph.has_reductions()) return device_row_kernel(graph, shape, name);
  if (shape.transposed != 0) return device_tile_kernel(graph, shape, name);
  return device_element_kernel(graph, shape, name);
}

std::string device_sums_source(const Graph& graph) {
  return device_sums_template(graph, "");
}

std::string device_sums_template(const Graph& graph, const std::string& name) {
  std::vector<Type> types;  // of the results that are summed
  for (size_t i = 0; i < graph.results().size(); ++i)
    if (is_sum(graph.output(i))) types.push_back(graph[graph.results()[i]].type);
  std::string text =
      "// Made of a formula by Opdock.\n"
      "#include \"opdock/formula_sums.cuh\"\n"
      "\n"
      "namespace opdock::formula {\n"
      "\n";
  if (!name.empty()) text += "template <int>\n";
  text += "OPDOCK_KERNEL(kTotalThreads)\n" + (name.empty() ? "sums" : name) + "(PartialSums<" +
          std::to_string(types.size()) + "> p) {\n  pdl_wait_and_trigger();\n";
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string n = std::to_string(i);
    text += "  if (block_index_y() == " + n + ") add_partial_sums<" + number_type(types[i]) + ", " +
            element_type(types[i]) + ">(p, " + n + ");\n";
  }
  return text +
         "}\n"
         "\n"
         "}  // namespace opdock::formula\n";
}

}  // namespace opdock::formula
