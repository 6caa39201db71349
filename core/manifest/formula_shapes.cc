// SPDX-License-Identifier: Apache-2.0
#include "manifest/formula_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "manifest/formula_parameters.h"

namespace opdock {
namespace {

using formula::Argument;
using formula::Graph;
using formula::Input;
using formula::Parameter;
using formula::Part;
using formula::Type;

class ShapeRules {
 public:
  ShapeRules(const Schema& schema, const formula::Formula& formula)
      : schema_(schema), formula_(formula) {
    // Integers and floats are tried, because bits have only the former.
    for (const auto& [one, other] :
         {std::pair(Type::kFloat32, Type::kFloat16), std::pair(Type::kInt32, Type::kInt16)}) {
      arguments_ = common_arguments(schema, one);
      graph_ = graph_of(arguments_);
      other_ = other;
      if (graph_ && graph_of(common_arguments(schema, other))) return;
    }
    graph_.reset();
  }

  std::vector<std::string> rules() const {
    std::vector<std::string> rules;
    size_t result = 0;
    for (const SchemaReturn& returned : schema_.returns) {
      if (returned.is_fresh_tensor()) rules.push_back(graph_ ? rule(result) : like_first());
      if (graph_) result += graph_->result_parts()[result].parts;
    }
    return rules;
  }

 private:
  std::optional<Graph> graph_of(const std::vector<Argument>& arguments) const {
    try {
      return formula_.graph(arguments);
    } catch (const formula::Error&) {
      return std::nullopt;
    }
  }

  std::string like_first() const {
    return "like " + schema_.params[static_cast<size_t>(schema_.first_tensor())].name;
  }

  std::string rule(size_t result) const {
    const std::string shape = shape_of(result);
    const Type type = type_in(*graph_, result);
    // A result whose dtype is an argument has it where that is there.
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (formula_.parameters()[i].kind != Parameter::Kind::kType || !follows_type(result, i))
        continue;
      const std::string& name = formula_.parameters()[i].name;
      const std::string given = shape + ", dtype " + name;
      if (!formula_.parameters()[i].is_optional) return given;
      return given + " if " + name + " else " + shape + dtype_of(result, shape, type);
    }
    return shape + dtype_of(result, shape, type);
  }

  // Returns the clause that names the dtype, or "" where the shape has it.
  std::string dtype_of(size_t result, const std::string& shape, Type type) const {
    std::vector<Argument> all = arguments_;
    for (Argument& argument : all) argument.type = other_;
    if (!follows(result, all, type)) return ", dtype " + std::string(name_of(type));
    for (const bool may_be_optional : {false, true}) {
      for (size_t i = 0; i < arguments_.size(); ++i) {
        const Parameter& param = formula_.parameters()[i];
        if (param.kind != Parameter::Kind::kTensor || param.is_optional != may_be_optional)
          continue;
        // The other tensors keep the type that a result has if it follows none of them alone.
        std::vector<Argument> others = all;
        others[i].type = arguments_[i].type;
        const std::optional<Graph> graph = graph_of(others);
        if (!graph || type_in(*graph, result) != type) continue;
        // A shape without a dtype has that of the first tensor.
        const bool is_first = !param.is_optional && schema_.first_tensor() == static_cast<int>(i);
        if (shape == "like " + param.name || (is_first && shape[0] == '[')) return "";
        return ", dtype like " + param.name;
      }
    }
    return "";
  }

  // Returns whether the result has another type than `type` for these arguments.
  bool follows(size_t result, const std::vector<Argument>& arguments, Type type) const {
    const std::optional<Graph> graph = graph_of(arguments);
    return graph && type_in(*graph, result) != type;
  }
  bool follows_type(size_t result, size_t param) const {
    std::vector<Argument> arguments = arguments_;
    arguments[param].is_present = true;
    for (const Type type : {Type::kFloat16, Type::kBfloat16}) {
      arguments[param].type = type;
      const std::optional<Graph> graph = graph_of(arguments);
      if (!graph || type_in(*graph, result) != type) return false;
    }
    return true;
  }
  static Type type_in(const Graph& graph, size_t result) {
    return graph[graph.results()[result]].type;
  }

  // Returns "like x", "[x.shape[:-1]]", "[broadcast(x, y)]" and the like.
  std::string shape_of(size_t result) const {
    std::vector<std::pair<std::string, uint32_t>> tensors;  // a name, and how many parts are taken
    for (const Input& input : graph_->inputs()) {
      const std::pair one(input.name, input.part.parts);
      if (!input.is_grouped && std::find(tensors.begin(), tensors.end(), one) == tensors.end())
        tensors.push_back(one);
    }
    const uint32_t parts = graph_->result_parts()[result].parts;
    const bool is_per_row =
        graph_->has_reductions() &&
        ((*graph_)[graph_->results()[result]].extent & formula::kPerColumn) == 0;
    std::string rows, last;
    if (tensors.size() == 1) {
      const auto& [name, taken] = tensors[0];
      if (taken == parts && !is_per_row) return "like " + name;
      rows = name + ".shape[:-1]";
      last = name + ".shape[-1]" + (taken > 1 ? fmt::format(" // {}", taken) : "");
      if (taken > 1 && parts > 1) last = "(" + last + ")";
    } else {
      std::string all;
      for (const auto& [name, taken] : tensors)
        all += (all.empty() ? "" : ", ") +
               (taken > 1 ? fmt::format("chunk({}, {})", name, taken) : name);
      all = "broadcast(" + all + ")";
      if (parts == 1 && !is_per_row) return "[" + all + "]";
      rows = all + "[:-1]";
      last = all + "[-1]";
    }
    if (is_per_row) return "[" + rows + "]";
    return fmt::format("[{}, {}{}]", rows, parts > 1 ? fmt::format("{} * ", parts) : "", last);
  }

  const Schema& schema_;
  const formula::Formula& formula_;
  std::vector<Argument> arguments_;  // of one dtype
  std::optional<Graph> graph_;       // for these; nothing if the formula takes no common dtype
  Type other_ = Type::kFloat16;      // a dtype that is promoted to theirs
};

}  // namespace

std::vector<std::string> common_shape_rules(const Schema& schema, const formula::Formula& formula) {
  if (schema.first_tensor() < 0) return {};
  return ShapeRules(schema, formula).rules();
}

}  // namespace opdock
