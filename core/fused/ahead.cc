// SPDX-License-Identifier: Apache-2.0
#include "fused/ahead.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/sha256.h"
#include "formula/cpu_source.h"
#include "formula/device_launch.h"
#include "formula/gradient.h"
#include "formula/rewrite.h"
#include "formula/space.h"
#include "fused/gradient_results.h"
#include "manifest/formula_parameters.h"

namespace opdock {
namespace {

using formula::Argument;
using formula::DeviceShape;
using formula::Graph;
using formula::Operand;
using formula::Type;

// The shape of usual calls; their kernels and code do not depend on it.
constexpr int64_t kUsualRows = 4096, kUsualColumns = 4096;

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
                     int64_t warp_size, bool is_even, bool has_clusters = false) {
  const std::array<int64_t, 2> shape = {rows, columns}, strides = {step, 1}, whole = {columns, 1};
  const std::array<int64_t, 2> per_row = {rows, 1}, per_row_strides = {1, 0};
  std::vector<Operand> inputs, results;
  for (const formula::Input& input : graph.inputs()) {
    const int rank = std::min(input.rank, 2);
    if (input.is_per_row && rank == 2)
      inputs.push_back({nullptr, rank, per_row.data(), per_row_strides.data()});
    else
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
  traits.has_clusters = has_clusters;
  return formula::plan_launch(graph, formula::make_space(graph, inputs, results), traits, is_even)
      .shape;
}

// Makes the grouped tensors of a formula over integers what they are in calls, the scales of
// quantized numbers: float32, of a single dimension.
void make_scales(const Schema& schema, const formula::Formula& formula, Type type,
                 std::vector<Argument>* arguments) {
  if (!formula::is_integer(type)) return;
  const Graph graph = formula.graph(*arguments);
  for (size_t i = 0; i < arguments->size(); ++i) {
    for (const formula::Input& input : graph.inputs()) {
      if (!input.is_grouped || input.name != schema.params[i].name) continue;
      (*arguments)[i].type = Type::kFloat32;
      (*arguments)[i].rank = 1;
    }
  }
}

// Calls visit(arguments) for each type and each combination of choices, the first parameter's
// fastest. Returns false if some are beyond kMaxChoices.
template <class Visit>
bool for_each_combination(const Schema& schema, const formula::Formula& formula,
                          const std::vector<Type>& types, const Visit& visit) {
  bool is_whole = true;
  const std::vector<std::string> texts = formula.strings();
  for (const Type type : types) {
    const std::vector<Argument> usual = common_arguments(schema, type);
    std::vector<std::vector<Argument>> choices;
    for (size_t i = 0; i < usual.size(); ++i)
      choices.push_back(choices_of(schema.params[i], usual[i], texts));
    std::vector<size_t> at(choices.size(), 0);
    for (size_t count = 0;; ++count) {
      if (count == kMaxChoices) {
        is_whole = false;
        break;
      }
      std::vector<Argument> arguments;
      for (size_t i = 0; i < choices.size(); ++i) arguments.push_back(choices[i][at[i]]);
      try {
        make_scales(schema, formula, type, &arguments);
        visit(std::move(arguments));
      } catch (const formula::Error&) {
        // The formula does not take these arguments, so that no call has them.
      }
      size_t i = 0;
      while (i < at.size() && ++at[i] == choices[i].size()) at[i++] = 0;
      if (i == at.size()) break;
    }
  }
  return is_whole;
}

// Returns how the gradients of these parameters are summed in a call whose tensors have rows or, of
// a single dimension, are the same in all rows.
std::vector<formula::Wanted> usual_gradients(const Graph& graph,
                                             const std::vector<std::string>& params) {
  const std::vector<int64_t> all = {kUsualRows, kUsualColumns}, strides = {kUsualColumns, 1};
  std::vector<formula::Wanted> wanted;
  for (const std::string& param : params) {
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      const formula::Input& input = graph.inputs()[i];
      if (input.name != param) continue;
      const int missing = 2 - input.rank;
      wanted.push_back(
          wanted_of(i, {nullptr, input.rank, all.data() + missing, strides.data() + missing}, all));
    }
  }
  return wanted;
}

}  // namespace

AheadGraphs ahead_graphs(const Schema& schema, const formula::Formula& formula,
                         const std::vector<Type>& types) {
  AheadGraphs found;
  found.is_whole =
      for_each_combination(schema, formula, types, [&](std::vector<Argument> arguments) {
        found.graphs.push_back(formula.graph(arguments));
        if (found.graphs.back().has_reductions() && make_row_vectors(&arguments))
          found.graphs.push_back(formula.graph(arguments));
      });
  return found;
}

AheadGraphs ahead_gradient_graphs(const Schema& schema, const formula::Formula& formula,
                                  const std::vector<std::string>& params,
                                  const std::vector<TensorRule>& rules,
                                  const std::vector<Type>& types) {
  AheadGraphs found;
  const auto has_rule = [&](size_t param, TensorRule::Kind kind) {
    return std::any_of(rules.begin(), rules.end(), [&](const TensorRule& rule) {
      return rule.kind == kind && rule.param == param;
    });
  };
  const auto add = [&](const std::vector<Argument>& arguments) {
    const Graph graph = formula.graph(arguments);
    found.graphs.push_back(formula::summed_gradients(graph, usual_gradients(graph, params)));
  };
  found.is_whole =
      for_each_combination(schema, formula, types, [&](std::vector<Argument> arguments) {
        bool is_free = false, is_first = true;
        std::vector<Argument> vectors;
        for (size_t i = 0; i < arguments.size(); ++i) {
          Argument& argument = arguments[i];
          const bool is_tensor = argument.rank == 2 && argument.is_present;
          if (is_tensor && has_rule(i, TensorRule::Kind::kBroadcast)) argument.rank = 1;
          vectors.push_back(argument);
          if (!is_tensor || std::exchange(is_first, false) || argument.rank == 1) continue;
          if (has_rule(i, TensorRule::Kind::kLike)) continue;
          is_free = true;
          vectors.back().rank = 1;
        }
        // Weights of rows are the same in all of them.
        if (!is_free || !formula.graph(arguments).has_reductions()) add(arguments);
        if (is_free) add(vectors);
      });
  return found;
}

std::vector<DeviceShape> ahead_shapes(const Graph& graph) {
  std::vector<DeviceShape> shapes;
  const auto add = [&](const DeviceShape& shape) {
    if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
  };
  if (!graph.has_reductions()) {
    for (const bool is_even : {true, false}) {
      // A tensor of one row has no gradient that is summed over rows.
      if (!graph.has_sums()) add(shape_of(graph, 1, kUsualColumns, kUsualColumns, 32, is_even));
      add(shape_of(graph, kUsualRows, kUsualColumns, kUsualColumns, 32, is_even));
      add(shape_of(graph, kUsualRows, kUsualColumns, kUsualColumns + 64, 32, is_even));
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
        for (const bool has_clusters : {false, true})
          add(shape_of(graph, 4096, columns, columns, warp_size, true,
                       has_clusters && warp_size == 32));
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
  // Adds the kernel of a source; text(name): the same as a template of that name.
  const auto add = [&](const std::string& source, const auto& text) {
    const std::string name = ahead_name(op, source);
    if (std::find(names.begin(), names.end(), name) != names.end()) return true;
    const size_t begin = name.rfind(':') + 1;
    const std::string made = text(name.substr(begin, name.rfind('<') - begin)) + "\n";
    if (names.size() == kMaxAheadKernels || kernels->source.size() + made.size() > kMaxAheadSource)
      return false;
    names.push_back(name);
    kernels->source += made;
    return true;
  };
  for (const Graph& one : graphs) {
    const Graph graph = formula::with_plain_reductions(one);
    std::vector<DeviceShape> shapes;
    try {
      shapes = ahead_shapes(graph);
    } catch (const formula::Error&) {
      continue;  // no usual call has this graph
    }
    for (const DeviceShape& shape : shapes)
      if (!add(formula::device_source(graph, shape), [&](const std::string& name) {
            return formula::device_template(graph, shape, name);
          }))
        return false;
    if (graph.has_sums() && !add(formula::device_sums_source(graph), [&](const std::string& name) {
          return formula::device_sums_template(graph, name);
        }))
      return false;
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
