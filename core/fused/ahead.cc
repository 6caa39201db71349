// SPDX-License-Identifier: Apache-2.0
#include "fused/ahead.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/sha256.h"
#include "formula/cpu_source.h"
#include "formula/device_launch.h"
#include "formula/rewrite.h"
#include "formula/space.h"
#include "manifest/formula_parameters.h"

namespace opdock {
namespace {

using formula::Argument;
using formula::DeviceShape;
using formula::Graph;
using formula::Operand;
using formula::Type;

// Returns the choices that an argument may be, the usual one first.
std::vector<Argument> choices_of(const SchemaParam& param, const Argument& usual,
                                 const std::vector<std::string>& texts) {
  std::vector<Argument> choices = {usual};
  Argument other = usual;
  other.is_present = true;
  if (param.type.tag == OPDOCK_TAG_BOOL) {
    for (const bool flag : {false, true}) {
      other.flag = flag;
      if (flag != usual.flag || !usual.is_present) choices.push_back(other);
    }
  }
  if (param.type.tag == OPDOCK_TAG_STRING) {
    std::vector<std::string> all = texts;
    // An empty text stands for those with which the formula does not compare, if none is the usual.
    if (std::find(texts.begin(), texts.end(), usual.text) != texts.end()) all.emplace_back();
    for (const std::string& text : all) {
      other.text = text;
      if (text != usual.text || !usual.is_present) choices.push_back(other);
    }
  }
  if (param.type.tag == OPDOCK_TAG_DTYPE) {
    for (const Type type : {Type::kFloat32, Type::kFloat16, Type::kBfloat16}) {
      other.type = type;
      if (type != usual.type || !usual.is_present) choices.push_back(other);
    }
  }
  if (param.type.optional && usual.is_present) {
    other = usual;
    other.is_present = false;
    choices.push_back(other);
  }
  return choices;
}

// Gives the tensors behind the first one a single dimension, as weights have it. Returns whether
// there are any.
bool make_row_vectors(std::vector<Argument>* arguments) {
  bool is_first = true, found = false;
  for (Argument& argument : *arguments) {
    if (argument.rank != 2 || !argument.is_present) continue;
    if (!is_first) argument.rank = 1;
    found = found || !is_first;
    is_first = false;
  }
  return found;
}

// Returns the launch's shape for rows of `columns` elements, which are `step` elements apart.
DeviceShape shape_of(const Graph& graph, int64_t rows, int64_t columns, int64_t step,
                     int64_t warp_size, bool is_even) {
  const std::array<int64_t, 2> shape = {rows, columns}, strides = {step, 1}, whole = {columns, 1};
  std::vector<Operand> inputs, results;
  for (const formula::Input& input : graph.inputs()) {
    const int rank = std::min(input.rank, 2);
    inputs.push_back({nullptr, rank, shape.data() + 2 - rank, strides.data() + 2 - rank});
  }
  const std::vector<int64_t> all(shape.begin(), shape.end());
  for (size_t i = 0; i < graph.results().size(); ++i) {
    const auto rank = static_cast<int>(formula::result_shape(graph, i, all).size());
    results.push_back({nullptr, rank, shape.data(), rank == 1 ? &whole[1] : whole.data()});
  }
  formula::DeviceTraits traits;
  traits.warp_size = warp_size;
  traits.multiprocessors = 128;
  return formula::plan_launch(graph, formula::make_space(graph, inputs, results), traits, is_even)
      .shape;
}

}  // namespace

AheadGraphs ahead_graphs(const Schema& schema, const formula::Formula& formula,
                         const std::vector<formula::Type>& types) {
  AheadGraphs found;
  const std::vector<std::string> texts = formula.strings();
  for (const formula::Type type : types) {
    const std::vector<Argument> usual = common_arguments(schema, type);
    std::vector<std::vector<Argument>> choices;
    for (size_t i = 0; i < usual.size(); ++i)
      choices.push_back(choices_of(schema.params[i], usual[i], texts));
    // Counts through the combinations, the first parameter fastest.
    std::vector<size_t> at(choices.size(), 0);
    for (size_t count = 0;; ++count) {
      if (count == kMaxChoices) {
        found.is_whole = false;
        break;
      }
      std::vector<Argument> arguments;
      for (size_t i = 0; i < choices.size(); ++i) arguments.push_back(choices[i][at[i]]);
      try {
        found.graphs.push_back(formula.graph(arguments));
        if (found.graphs.back().has_reductions() && make_row_vectors(&arguments))
          found.graphs.push_back(formula.graph(arguments));
      } catch (const formula::Error&) {
        // The formula does not take these arguments, so that no call has them.
      }
      size_t i = 0;
      while (i < at.size() && ++at[i] == choices[i].size()) at[i++] = 0;
      if (i == at.size()) break;
    }
  }
  return found;
}

std::vector<DeviceShape> ahead_shapes(const Graph& graph) {
  std::vector<DeviceShape> shapes;
  const auto add = [&](const DeviceShape& shape) {
    if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
  };
  if (!graph.has_reductions()) {
    for (const bool is_even : {true, false}) {
      add(shape_of(graph, 1, 4096, 4096, 32, is_even));
      add(shape_of(graph, 4096, 4096, 4096, 32, is_even));
      add(shape_of(graph, 4096, 4096, 4096 + 64, 32, is_even));
    }
    return shapes;
  }
  // One kernel is for rows of a power of two, and one for all other rows of whole vectors between
  // two powers. Kernels for longer rows, and for rows that have no whole vectors, are compiled when
  // such rows are first seen.
  constexpr int64_t kMinColumns = 64, kMaxColumns = int64_t{1} << 14;
  for (const int64_t warp_size : {32, 64})
    for (int64_t power = kMinColumns; power <= kMaxColumns; power *= 2)
      for (const int64_t columns : {power, power + power / 2})
        add(shape_of(graph, 4096, columns, columns, warp_size, true));
  return shapes;
}

std::string ahead_name(const std::string& op, const std::string& source) {
  FieldHasher hasher;
  hasher.add(std::to_string(formula::kParameterLayout)).add(source);
  return "opdock::formula::" + op + "_" + to_hex(hasher.finish()).substr(0, 16) + "<0>";
}

bool add_ahead_kernels(const std::string& op, const std::vector<Graph>& graphs,
                       AheadKernels* kernels) {
  std::vector<std::string>& names = kernels->names;
  for (const Graph& one : graphs) {
    const Graph graph = formula::with_plain_reductions(one);
    std::vector<DeviceShape> shapes;
    try {
      shapes = ahead_shapes(graph);
    } catch (const formula::Error&) {
      continue;  // no usual call has this graph
    }
    for (const DeviceShape& shape : shapes) {
      const std::string name = ahead_name(op, formula::device_source(graph, shape));
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      const size_t begin = name.rfind(':') + 1;
      const std::string plain = name.substr(begin, name.rfind('<') - begin);
      const std::string source = formula::device_template(graph, shape, plain) + "\n";
      if (names.size() == kMaxAheadKernels ||
          kernels->source.size() + source.size() > kMaxAheadSource)
        return false;
      names.push_back(name);
      kernels->source += source;
    }
  }
  return true;
}

std::string cpu_code_name(const Graph& graph) {
  FieldHasher hasher;
  hasher.add(std::to_string(OPDOCK_FORMULA_CPU_VERSION));
  hasher.add(formula::cpu_source(graph.simplified(), formula::kCodeFunction, false));
  return "formula_" + to_hex(hasher.finish()).substr(0, 16);
}

bool add_ahead_cpu_code(const std::vector<Graph>& graphs, AheadCpuCode* code) {
  std::vector<std::string>& names = code->names;
  for (const Graph& graph : graphs) {
    const std::string name = cpu_code_name(graph);
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    if (names.size() == kMaxAheadFunctions) return false;
    names.push_back(name);
    code->source += formula::cpu_source(graph.simplified(), name) + "\n";
  }
  return true;
}

}  // namespace opdock
