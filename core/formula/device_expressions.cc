// SPDX-License-Identifier: Apache-2.0
#include "formula/device_expressions.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace opdock::formula {
namespace {

// Returns the operator between two floats, or of two bools, or "".
std::string_view infix(Op op, bool is_float) {
  switch (op) {
    case Op::kAdd:
      return is_float ? "+" : "";
    case Op::kSub:
      return is_float ? "-" : "";
    case Op::kMul:
      return is_float ? "*" : "";
    case Op::kDiv:
      return "/";
    case Op::kEqual:
      return "==";
    case Op::kNotEqual:
    case Op::kLogicalXor:
      return "!=";
    case Op::kLess:
      return "<";
    case Op::kLessEqual:
      return "<=";
    case Op::kGreater:
      return ">";
    case Op::kGreaterEqual:
      return ">=";
    case Op::kLogicalAnd:
      return "&&";
    case Op::kLogicalOr:
      return "||";
    case Op::kBitwiseAnd:
      return "&";
    case Op::kBitwiseOr:
      return "|";
    case Op::kBitwiseXor:
      return "^";
    default:
      return "";
  }
}

bool is_small_integer(Type type) {
  return is_integer(type) && size_of(type) < 4;
}

// Returns a cast to the number type of `to`.
std::string converted(const std::string& text, Type from, Type to) {
  if (to == Type::kBool) return "(" + text + " != 0)";
  if (is_small_integer(to) && from != to) {
    const std::string first = is_float(from) ? "to_integer<int64_t>(" + text + ")" : text;
    return "static_cast<int32_t>(static_cast<" + element_type(to) + ">(" + first + "))";
  }
  if (is_float(from) && is_integer(to)) return "to_integer<" + number_type(to) + ">(" + text + ")";
  if (number_type(from) == number_type(to)) return text;
  return "static_cast<" + number_type(to) + ">(" + text + ")";
}

// Whether there is a quick form of the operation on float32.
bool has_quick_form(Op op) {
  switch (op) {
    case Op::kExp:
    case Op::kSigmoid:
    case Op::kSilu:
    case Op::kGelu:
    case Op::kGeluTanh:
    case Op::kDiv:
    case Op::kReciprocal:
    case Op::kSqrt:
    case Op::kRsqrt:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool is_short(const Graph& graph) {
  return !graph.exact() && !graph.results().empty() &&
         std::all_of(graph.results().begin(), graph.results().end(), [&](Id id) {
           return graph[id].type == Type::kFloat16 || graph[id].type == Type::kBfloat16;
         });
}

std::string element_type(Type type) {
  switch (type) {
    case Type::kBool:
    case Type::kUint8:
      return "uint8_t";
    case Type::kFloat16:
      return "half";
    case Type::kBfloat16:
      return "bfloat16";
    case Type::kFloat32:
      return "float";
    case Type::kFloat64:
      return "double";
    default:
      return std::string(name_of(type)) + "_t";
  }
}

std::string number_type(Type type) {
  if (type == Type::kBool) return "bool";
  if (is_small_integer(type)) return "int32_t";
  return element_type(compute_type(type));
}

std::string constant_text(Type type, const Value& value) {
  if (type == Type::kBool) return value.integer != 0 ? "true" : "false";
  if (!is_float(type)) {
    // The smallest numbers have no literals: -2147483648 would be an int64_t, which the functions
    // of two int32_t do not take.
    if (type != Type::kInt64)
      return value.integer == INT32_MIN ? "(-2147483647 - 1)" : std::to_string(value.integer);
    return "int64_t(" +
           (value.integer == INT64_MIN ? "-9223372036854775807LL - 1"
                                       : std::to_string(value.integer) + "LL") +
           ")";
  }
  const bool is_double = type == Type::kFloat64;
  const std::string name = is_double ? "double" : "float";
  if (std::isnan(value.real)) return "not_a_number<" + name + ">()";
  if (std::isinf(value.real)) return (value.real < 0 ? "-infinite<" : "infinite<") + name + ">()";
  char text[40];
  // Hexadecimal digits are exact; a decimal form is shown where it is exact too.
  std::snprintf(text, sizeof text, is_double ? "%.17g" : "%.9g", value.real);
  std::string out = text;
  if (out.find_first_of(".e") == out.npos) out += ".0";
  return is_double ? out : out + "f";
}

std::string variable_name(const Graph& graph, Id id) {
  std::string name;
  const auto known = graph.names().find(id);
  if (known != graph.names().end()) {
    for (const char c : known->second.substr(0, 40)) {
      const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                            (c >= '0' && c <= '9' && !name.empty());
      if (is_plain || (c == '_' && !name.empty() && name.back() != '_')) name += c;
    }
  }
  if (name.empty()) name = "t";
  return name + (name.back() == '_' ? "" : "_") + std::to_string(id);
}

std::string expression(const Graph& graph, Id id, const std::array<std::string, 3>& args) {
  const Node& node = graph[id];
  const auto& [a, b, c] = args;
  const auto type_of = [&](int i) { return graph[node.args[static_cast<size_t>(i)]].type; };
  const bool is_half = compute_type(node.type) != node.type;
  std::string text;
  if (node.op == Op::kConstant) return constant_text(node.type, node.value);
  if (node.op == Op::kConvert || node.op == Op::kCast) {
    text = converted(a, type_of(0), node.type);
    if (!is_half || !graph.rounds(id)) return text;
    return "rounded<" + element_type(node.type) + ">(" + text + ")";
  }
  if (node.op == Op::kDetach) return a;
  const Operation& what = operation(node.op);
  const Type operands = type_of(node.op == Op::kWhere ? 1 : 0);
  const bool is_quick = has_quick_form(node.op) && compute_type(node.type) == Type::kFloat32 &&
                        (node.extent & kPerColumn) != 0 && is_short(graph);
  const std::string_view between = is_quick ? "" : infix(node.op, is_float(operands));
  if (node.op == Op::kWhere) {
    text = "(" + a + " ? " + b + " : " + c + ")";
  } else if (node.op == Op::kLogicalNot ||
             (node.op == Op::kBitwiseNot && operands == Type::kBool)) {
    text = "!" + a;
  } else if (node.op == Op::kBitwiseNot) {
    text = "(~" + a + ")";
  } else if (node.op == Op::kNegative && is_float(operands)) {
    text = "(-" + a + ")";
  } else if (node.op == Op::kShiftLeft || node.op == Op::kShiftRight) {
    text = std::string(node.op == Op::kShiftLeft ? "shift_left<" : "shift_right<") +
           std::to_string(8 * size_of(operands)) + ">(" + a + ", " + b + ")";
  } else if (!between.empty()) {
    text = "(" + a + " " + std::string(between) + " " + b + ")";
  } else {
    text = (is_quick ? "quick::" : "") + std::string(what.name) + "(" + a;
    for (int i = 1; i < what.arguments; ++i) text += ", " + args[static_cast<size_t>(i)];
    text += ")";
  }
  if (is_small_integer(node.type) && node.op != Op::kWhere)
    return "static_cast<int32_t>(static_cast<" + element_type(node.type) + ">(" + text + "))";
  if (is_half && graph.rounds(id)) return "rounded<" + element_type(node.type) + ">(" + text + ")";
  return text;
}

}  // namespace opdock::formula
