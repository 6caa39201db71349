// Prints a formula twice as the nodes of a graph, for docs/reference/make_formula_graph.py: as it
// is written, and as the graph of which its kernels are made.
// SPDX-License-Identifier: Apache-2.0
//
//   graph_lines FORMULA NUMBER…
//
// NUMBER: the names of parameters that are no tensors. Lines: "written" or "graph", then for each
// node its number, its label, a colon, and the numbers of its operands; and "results", their
// numbers.
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "formula/formula.h"
#include "formula/program.h"

namespace opdock::formula {
namespace {

void print_node(int id, const std::string& label, const std::vector<int>& operands) {
  std::printf("%d %s :", id, label.c_str());
  for (const int operand : operands) std::printf(" %d", operand);
  std::printf("\n");
}

void print_results(const std::vector<int32_t>& results) {
  std::printf("results");
  for (const int32_t id : results) std::printf(" %d", id);
  std::printf("\n");
}

// A variable is no node of its own: it stands for what it was assigned.
ExprId meant(const Program& program, ExprId id) {
  while (program[id].form == Form::kVariable) id = program[id].definition;
  return id;
}

void print_written(const Program& program) {
  std::printf("written\n");
  std::set<ExprId> used;
  std::vector<ExprId> pending;
  for (const ExprId id : program.results) pending.push_back(meant(program, id));
  const std::vector<ExprId> results = pending;
  while (!pending.empty()) {
    const ExprId id = pending.back();
    pending.pop_back();
    if (!used.insert(id).second) continue;
    for (const ExprId arg : program[id].args)
      if (arg != kNoExpr) pending.push_back(meant(program, arg));
  }
  for (const ExprId id : used) {
    std::vector<int> operands;
    for (const ExprId arg : program[id].args)
      if (arg != kNoExpr) operands.push_back(meant(program, arg));
    print_node(id, std::string(program[id].text), operands);
  }
  print_results(results);
}

std::string label_of(const Graph& graph, Id id) {
  const Node& node = graph[id];
  switch (node.op) {
    case Op::kInput:
      return graph.inputs()[node.index].name;
    case Op::kScalar:
      return graph.scalars()[node.index].name;
    case Op::kConstant: {
      char text[32];
      std::snprintf(text, sizeof text, "%g", node.value.real);
      return is_float(node.type) ? text : std::to_string(node.value.integer);
    }
    case Op::kRow:
      return "row";
    case Op::kColumn:
      return "column";
    case Op::kColumns:
      return "columns";
    case Op::kCast:
      return "to_" + std::string(name_of(node.type));
    default:
      return std::string(operation(node.op).name);
  }
}

// A conversion between float types without rounding is no step of a kernel.
Id meant(const Graph& graph, Id id) {
  while (id != kNone && graph[id].op == Op::kConvert) id = graph[id].args[0];
  return id;
}

void print_graph(const Graph& graph) {
  std::printf("graph\n");
  std::set<Id> used;
  std::vector<Id> pending, results;
  for (const Id id : graph.results()) results.push_back(meant(graph, id));
  pending = results;
  while (!pending.empty()) {
    const Id id = pending.back();
    pending.pop_back();
    if (id == kNone || !used.insert(id).second) continue;
    for (const Id arg : graph[id].args) pending.push_back(meant(graph, arg));
  }
  for (const Id id : used) {
    std::vector<int> operands;
    for (const Id arg : graph[id].args)
      if (arg != kNone) operands.push_back(meant(graph, arg));
    print_node(id, label_of(graph, id), operands);
  }
  print_results(results);
}

int run(const char* text, const std::set<std::string>& numbers) {
  std::vector<Parameter> parameters = Formula(text).parameters();
  for (Parameter& one : parameters)
    if (numbers.contains(one.name)) one.kind = Parameter::Kind::kFloat;
  const Formula formula(text, parameters);
  print_written(*parse(text, &parameters, false));
  print_graph(formula.graph(std::vector<Argument>(parameters.size())));
  return 0;
}

}  // namespace
}  // namespace opdock::formula

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  return opdock::formula::run(argv[1], {argv + 2, argv + argc});
}
