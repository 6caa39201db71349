// SPDX-License-Identifier: Apache-2.0
#include "formula/builtins.h"

#include <map>

namespace opdock::formula {
namespace {

constexpr std::string_view kOperationNames[] = {
#define OPDOCK_OPERATION(identifier, name, arguments, rule, derivatives) name,
#include "formula/operations.def"
#undef OPDOCK_OPERATION
};

std::map<std::string_view, Function> all_functions() {
  std::map<std::string_view, Function> all;
  for (const std::string_view name : kOperationNames) {
    Function one;
    one.op = *find_operation(name);
    one.name = name;
    one.min_arguments = one.max_arguments = operation(one.op).arguments;
    one.usage = std::string(name) + (one.max_arguments == 1   ? "(a)"
                                     : one.max_arguments == 2 ? "(a, b)"
                                                              : "(a, b, c)");
    all[name] = one;
  }
  const auto add = [&](Builtin builtin, std::string_view name, int min, int max,
                       std::string_view arguments, std::array<std::string_view, 3> keywords = {},
                       std::optional<Type> type = std::nullopt) {
    all[name] = {
        builtin, Op::kConstant, type,     name,
        min,     max,           keywords, std::string(name) + "(" + std::string(arguments) + ")"};
  };
  add(Builtin::kClamp, "clamp", 1, 3, "x, min=None, max=None", {"", "min", "max"});
  add(Builtin::kGelu, "gelu", 1, 2, "x, approximate=\"none\"", {"", "approximate", ""});
  add(Builtin::kSquare, "square", 1, 1, "x");
  add(Builtin::kMax, "max", 1, 2, "x) or max(a, b");
  add(Builtin::kMin, "min", 1, 2, "x) or min(a, b");
  add(Builtin::kLerp, "lerp", 3, 3, "a, b, weight", {"", "", "weight"});
  add(Builtin::kSoftmax, "softmax", 1, 1, "x");
  add(Builtin::kLogSoftmax, "log_softmax", 1, 1, "x");
  add(Builtin::kVar, "var", 1, 2, "x, correction=0", {"", "correction", ""});
  add(Builtin::kRow, "row", 0, 0, "");
  add(Builtin::kColumn, "column", 0, 0, "");
  add(Builtin::kColumns, "columns", 0, 0, "");
  add(Builtin::kChunk, "chunk", 2, 3, "x, parts", {"", "", "dim"});
  add(Builtin::kCat, "cat", 2, 2, "a, b, …");
  add(Builtin::kGrouped, "grouped", 1, 1, "x");
  add(Builtin::kTo, "to", 2, 2, "x, type");
  add(Builtin::kTo, "half", 1, 1, "x", {}, Type::kFloat16);
  add(Builtin::kTo, "bfloat16", 1, 1, "x", {}, Type::kBfloat16);
  add(Builtin::kTo, "float", 1, 1, "x", {}, Type::kFloat32);
  add(Builtin::kTo, "double", 1, 1, "x", {}, Type::kFloat64);
  return all;
}

const std::map<std::string_view, Function>& functions() {
  static const auto& all = *new std::map<std::string_view, Function>(all_functions());
  return all;
}

}  // namespace

const Function* find_function(std::string_view name) {
  const auto found = functions().find(name);
  return found == functions().end() ? nullptr : &found->second;
}

std::vector<std::string_view> function_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, function] : functions()) names.push_back(name);
  return names;
}

}  // namespace opdock::formula
