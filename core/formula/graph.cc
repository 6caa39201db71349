// SPDX-License-Identifier: Apache-2.0
#include "formula/graph.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "formula/canonical.h"
#include "formula/fold.h"
#include "formula/syntax_error.h"

namespace opdock::formula {
namespace {

constexpr Operation kOperations[] = {
#define OPDOCK_OPERATION(identifier, name, arguments, rule, derivatives) \
  {name, arguments, Rule::rule, derivatives},
#include "formula/operations.def"
#undef OPDOCK_OPERATION
};
constexpr int kFirst = static_cast<int>(Op::kCast) + 1;

// Returns the node as a text that identifies it among those of its graph.
std::string text_of(const Node& node) {
  std::string text = std::to_string(static_cast<int>(node.op)) + ":" +
                     std::to_string(static_cast<int>(node.type)) + ":" +
                     std::to_string(static_cast<int>(node.level));
  for (const Id arg : node.args)
    if (arg != kNone) text += "," + std::to_string(arg);
  if (node.op == Op::kInput || node.op == Op::kScalar) text += "#" + std::to_string(node.index);
  if (node.op == Op::kConstant) {
    // By its bits: -0 and 0 differ, and so do NaNs.
    uint64_t bits = 0;
    std::memcpy(&bits, &node.value.real, sizeof bits);
    text += "=" + (is_float(node.type) ? std::to_string(bits) : std::to_string(node.value.integer));
  }
  return text;
}

// Returns "" for a whole tensor.
std::string text_of(const Part& part) {
  if (part.parts == 1) return "";
  return "@" + std::to_string(part.part) + "/" + std::to_string(part.parts);
}

// Returns whether every number of `from` is a number of `to`.
bool holds(Type to, Type from) {
  if (to == from) return true;
  if (is_float(to)) {
    const int digits[] = {11, 8, 24, 53};
    const auto at = [](Type type) {
      return static_cast<int>(type) - static_cast<int>(Type::kFloat16);
    };
    if (is_float(from)) return digits[at(to)] >= digits[at(from)] && !(to == Type::kFloat16);
    return digits[at(to)] >= 8 * size_of(from) && to != Type::kFloat16;
  }
  if (is_float(from)) return false;
  if (from == Type::kBool) return true;
  return to != Type::kBool && size_of(to) > size_of(from) && to != Type::kUint8;
}

}  // namespace

const Operation& operation(Op op) {
  return kOperations[static_cast<int>(op) - kFirst];
}

const Op* find_operation(std::string_view name) {
  static const std::unordered_map<std::string_view, Op>& known = *[] {
    auto* const all = new std::unordered_map<std::string_view, Op>;
    int op = kFirst;
    for (const Operation& one : kOperations) all->emplace(one.name, static_cast<Op>(op++));
    return all;
  }();
  const auto found = known.find(name);
  return found == known.end() ? nullptr : &found->second;
}

Id Graph::add(Node node) {
  for (const Id arg : node.args)
    if (arg != kNone) node.extent |= (*this)[arg].extent;
  if (!is_leaf(node.op) && is_reduction(node.op)) {
    node.extent = static_cast<uint8_t>(node.extent & kPerRow);
  }
  const auto [known, is_new] = known_.emplace(text_of(node), size());
  if (!is_new) return known->second;
  if (nodes_.size() >= kMaxNodes) {
    known_.erase(known);
    throw Error("found more than " + std::to_string(kMaxNodes) +
                " operations, wanted a smaller formula; split it in two");
  }
  nodes_.push_back(node);
  return known->second;
}

Id Graph::leaf(Op op, Type type, Level level, uint8_t extent, size_t index) {
  Node node;
  node.op = op;
  node.type = type;
  node.level = level;
  node.extent = extent;
  node.index = static_cast<uint32_t>(index);
  return add(node);
}

Id Graph::input(std::string name, Type type, int rank, bool is_per_row) {
  return input({std::move(name), type, rank, is_per_row, {}, false});
}

Id Graph::input(Input input) {
  if (inputs_.size() >= kMaxInputs)
    throw Error("found more than " + std::to_string(kMaxInputs) +
                " tensors, wanted at most that many; split the formula in two");
  const bool has_rows = input.rank > 1 || input.is_grouped;
  const uint8_t all = has_rows ? kFull : input.rank == 1 ? kPerColumn : kOnce;
  const auto extent = static_cast<uint8_t>(input.is_per_row ? all & kPerRow : all);
  const Id id = leaf(Op::kInput, input.type, input.rank == 0 ? Level::kZeroDim : Level::kTensor,
                     extent, inputs_.size());
  // A part is named by the formula's statement.
  if (input.part.parts == 1) name(id, input.name);
  inputs_.push_back(std::move(input));
  return id;
}

Id Graph::scalar(std::string name, Type type) {
  if (scalars_.size() >= kMaxScalars)
    throw Error("found more than " + std::to_string(kMaxScalars) +
                " numbers as parameters, wanted at most that many");
  const Id id = leaf(Op::kScalar, type, Level::kNumber, kOnce, scalars_.size());
  this->name(id, name);
  scalars_.push_back({std::move(name), type});
  return id;
}

Id Graph::constant(Type type, Level level, Value value) {
  Node node;
  node.type = type;
  node.level = level;
  node.value = value;
  return add(node);
}
Id Graph::constant(double value) {
  return constant(Type::kFloat64, Level::kNumber, {value, 0});
}
Id Graph::constant(int64_t value) {
  return constant(Type::kInt64, Level::kNumber, {0, value});
}
Id Graph::constant(bool value) {
  return constant(Type::kBool, Level::kNumber, {0, value ? 1 : 0});
}

Id Graph::row() {
  return leaf(Op::kRow, Type::kInt64, Level::kTensor, kPerRow, 0);
}
Id Graph::column() {
  return leaf(Op::kColumn, Type::kInt64, Level::kTensor, kPerColumn, 0);
}
Id Graph::columns() {
  return leaf(Op::kColumns, Type::kInt64, Level::kNumber, kOnce, 0);
}

Id Graph::convert(Op how, Id a, Type type) {
  const Node from = (*this)[a];
  const bool rounds = how == Op::kCast && compute_type(type) != type;
  if (from.op == Op::kConstant) {
    Value value = formula::convert(from.value, from.type, type);
    if (rounds) value.real = round_to(type, value.real);
    return constant(type, from.level, value);
  }
  if (from.type == type && !rounds) return a;
  if (from.op == Op::kInput && from.type == type) return a;
  // A conversion of a conversion that loses nothing is one conversion.
  const bool is_conversion = from.op == Op::kConvert || from.op == Op::kCast;
  if (is_conversion && (from.type != type || from.op == Op::kCast)) {
    const Id before = from.args[0];
    const bool is_exact = (*this)[before].op == Op::kInput || (*this)[before].op == Op::kCast ||
                          compute_type((*this)[before].type) == (*this)[before].type;
    if (is_exact && holds(from.type, (*this)[before].type)) {
      if ((*this)[before].type == type) return before;
      return convert(how, before, type);
    }
    if (from.op == how && from.type == type) return a;
  }
  Node node;
  node.op = how;
  node.type = type;
  node.level = from.level;
  node.args[0] = a;
  return add(node);
}

Id Graph::cast(Id a, Type type) {
  return convert(Op::kCast, a, type);
}

Id Graph::convert(Id a, Type type) {
  return convert(Op::kConvert, a, type);
}

Id Graph::as_bool(Id a) {
  return convert(Op::kConvert, a, Type::kBool);
}

// Returns a node with the same numbers, also for NaN, infinity and -0, or kNone.
Id Graph::simpler(Op op, Id a, Id b) {
  const Node& left = (*this)[a];
  const auto is = [&](Id id, double number) {
    const Node& node = (*this)[id];
    if (node.op != Op::kConstant) return false;
    return is_float(node.type)
               ? node.value.real == number && std::signbit(node.value.real) == std::signbit(number)
               : static_cast<double>(node.value.integer) == number;
  };
  switch (op) {
    case Op::kNegative:
      return left.op == Op::kNegative ? left.args[0] : kNone;
    case Op::kAbs:
    case Op::kRelu:
      return left.op == op ? a : kNone;
    case Op::kDetach:  // where no gradient would go back anyway
      return left.op == op || left.op == Op::kConstant || !is_float(left.type) ? a : kNone;
    case Op::kMul:
      return is(b, 1) ? a : is(a, 1) ? b : kNone;
    case Op::kDiv:
      return is(b, 1) ? a : kNone;
    case Op::kSub:
      return is(b, 0.0) ? a : kNone;
    case Op::kAdd:
      if (!is_float(left.type)) return is(b, 0) ? a : is(a, 0) ? b : kNone;
      return is(b, -0.0) ? a : is(a, -0.0) ? b : kNone;
    case Op::kPow:
      if (is(b, 1)) return a;
      if (is(b, 2)) return apply(Op::kMul, a, a);
      if (is(b, 3)) return apply(Op::kMul, apply(Op::kMul, a, a), a);
      if (!is_float(left.type)) return kNone;
      if (is(b, 0.5)) return apply(Op::kSqrt, a);
      if (is(b, -0.5)) return apply(Op::kRsqrt, a);
      return is(b, -1) ? apply(Op::kReciprocal, a) : kNone;
    default:
      return kNone;
  }
}

Id Graph::apply(Op op, Id a, Id b, Id c) {
  const Operation& what = operation(op);
  std::array<Id, 3> args = {a, b, c};
  const auto of = [&](int i) -> const Node& { return (*this)[args[static_cast<size_t>(i)]]; };
  const auto refuse = [&](Type found, const char* wanted) {
    throw Error(quoted(what.name) + ": found " + std::string(name_of(found)) + ", wanted " +
                wanted);
  };
  // The type to which the operands are converted, and the level of the result.
  const int first = op == Op::kWhere ? 1 : 0;
  Type type = of(first).type;
  Level level = of(first).level;
  for (int i = first + 1; i < what.arguments; ++i) {
    type = promote(type, level, of(i).type, of(i).level);
    level = std::max(level, of(i).level);
  }
  Type result = type;
  switch (what.rule) {
    case Rule::kArithmetic:
    case Rule::kRounding:
      if (type == Type::kBool) refuse(type, "numbers; for bools there are &, | and ^");
      break;
    case Rule::kReduceFloat:
      if (!is_float(type)) refuse(type, "floats; convert it first: x.to(float32)");
      break;
    case Rule::kFloat:
      if (!is_float(type))
        result = type = level == Level::kNumber ? Type::kFloat64 : Type::kFloat32;
      break;
    case Rule::kLogical:
    case Rule::kReduceBool:
      result = type = Type::kBool;
      break;
    case Rule::kCompare:
    case Rule::kTest:
      result = Type::kBool;
      break;
    case Rule::kBits:
      if (is_float(type)) refuse(type, "integers or bools");
      break;
    case Rule::kSame:
      break;
    case Rule::kShift:
      if (!is_integer(type)) refuse(type, "integers");
      break;
    case Rule::kReduce:
      if (type == Type::kBool) refuse(type, "numbers; for bools there are any and all");
      break;
    case Rule::kReduceSum:
      if (!is_float(type)) result = type = Type::kInt64;
      break;
    case Rule::kReduceIndex:
      if (type == Type::kBool) refuse(type, "numbers");
      result = Type::kInt64;
      break;
    case Rule::kWhere:
      // Between two numbers a tensor chooses: they become elements of PyTorch's default dtype.
      if (level == Level::kNumber && of(0).level != Level::kNumber && type == Type::kFloat64)
        result = type = Type::kFloat32;
      level = std::max(level, of(0).level);
      args[0] = as_bool(args[0]);
      break;
  }
  if (is_reduction(op) && (of(0).extent & kPerColumn) == 0)
    throw Error(quoted(what.name) +
                ": found an argument that is the same in the whole row, wanted one that has a "
                "number for each column");
  if (what.rule == Rule::kRounding && is_integer(type)) return a;
  for (int i = first; i < what.arguments; ++i) {
    Id& arg = args[static_cast<size_t>(i)];
    arg = what.rule == Rule::kLogical || what.rule == Rule::kReduceBool
              ? as_bool(arg)
              : convert(Op::kConvert, arg, type);
  }
  bool is_constant = !is_reduction(op);
  for (int i = 0; i < what.arguments; ++i) is_constant = is_constant && of(i).op == Op::kConstant;
  if (is_constant) {
    std::array<Value, 3> values;
    for (int i = 0; i < what.arguments; ++i) values[static_cast<size_t>(i)] = of(i).value;
    const std::optional<Value> known = fold(op, result, type, values);
    if (known) return constant(result, level, *known);
  }
  if (op == Op::kWhere && of(0).op == Op::kConstant)
    return of(0).value.integer != 0 ? args[1] : args[2];
  const Id same = simpler(op, args[0], args[1]);
  // A number that only decides about types may have raised the level.
  if (same != kNone && (*this)[same].level == level) return same;
  if (is_commutative(op) && args[0] > args[1]) std::swap(args[0], args[1]);
  Node node;
  node.op = op;
  node.type = result;
  node.level = is_reduction(op) ? Level::kTensor : level;
  node.args = args;
  return add(node);
}

Id Graph::copy(const Node& node, const std::array<Id, 3>& args) {
  Node now = node;
  now.args = args;
  if (!is_leaf(now.op)) now.extent = kOnce;  // add() finds it
  return add(now);
}

void Graph::name(Id id, std::string_view name) {
  names_.emplace(id, std::string(name));
}

void Graph::add_result(Id id, Output output, Part part) {
  if (results_.size() >= kMaxResults)
    throw Error("found more than " + std::to_string(kMaxResults) +
                " results, wanted at most that "
                "many");
  const Type type = (*this)[id].type;
  if (is_sum(output) && !is_float(type))
    throw Error("found a sum over rows of " + std::string(name_of(type)) + ", wanted a float");
  results_.push_back(id);
  outputs_.push_back(output);
  result_parts_.push_back(part);
}

size_t Graph::num_outputs() const {
  return static_cast<size_t>(std::count_if(result_parts_.begin(), result_parts_.end(),
                                           [](const Part& one) { return one.part == 0; }));
}

bool Graph::has_columns(size_t result) const {
  const Output output = outputs_[result];
  if (output == Output::kWhole || output == Output::kColumnSums) return true;
  return ((*this)[results_[result]].extent & kPerColumn) != 0 || !has_reductions();
}

bool Graph::has_sums() const {
  return std::any_of(outputs_.begin(), outputs_.end(), is_sum);
}

bool Graph::rounds(Id id) const {
  const Node& node = (*this)[id];
  if (node.op == Op::kCast) return true;
  if (!exact_ || is_leaf(node.op)) return false;
  return node.op != Op::kConvert || node.level != Level::kNumber;
}

bool Graph::has_reductions() const {
  for (const Node& node : nodes_)
    if (is_reduction(node.op)) return true;
  // The gradient of a row's result may be computed from nothing else than that of the result.
  const auto is_per_row = [](const Input& input) { return input.is_per_row; };
  const auto has_no_columns = [&](Id id) { return ((*this)[id].extent & kPerColumn) == 0; };
  return std::any_of(inputs_.begin(), inputs_.end(), is_per_row) &&
         std::any_of(results_.begin(), results_.end(), has_no_columns);
}

Graph Graph::simplified() const {
  Graph out(exact_);
  out.inputs_ = inputs_;
  out.scalars_ = scalars_;
  std::vector<Id> place(nodes_.size(), kNone);
  const std::vector<Rank> rank = ranks(*this);
  // Depth first from the results, without recursion: a formula may be deep.
  std::vector<Id> stack;
  for (size_t i = 0; i < results_.size(); ++i) {
    const Id result = results_[i];
    stack.push_back(result);
    while (!stack.empty()) {
      const Id id = stack.back();
      const Node& old = (*this)[id];
      std::array<Id, 3> args = old.args;
      if (is_commutative(old.op) &&
          rank[static_cast<size_t>(args[1])] < rank[static_cast<size_t>(args[0])])
        std::swap(args[0], args[1]);
      Id missing = kNone;
      for (const Id arg : args)
        if (arg != kNone && place[static_cast<size_t>(arg)] == kNone && missing == kNone)
          missing = arg;
      if (missing != kNone) {
        stack.push_back(missing);
        continue;
      }
      stack.pop_back();
      if (place[static_cast<size_t>(id)] != kNone) continue;
      for (Id& arg : args)
        if (arg != kNone) arg = place[static_cast<size_t>(arg)];
      if (is_commutative(old.op) && args[0] > args[1]) std::swap(args[0], args[1]);
      const Id now = place[static_cast<size_t>(id)] = out.copy(old, args);
      const auto known = names_.find(id);
      if (known != names_.end()) out.name(now, known->second);
    }
    out.add_result(place[static_cast<size_t>(result)], outputs_[i], result_parts_[i]);
  }
  return out;
}

std::string Graph::key() const {
  const Graph plain = simplified();
  std::string text = exact_ ? "exact" : "wide";
  for (const Input& input : inputs_)
    text += ";" + std::string(name_of(input.type)) + "/" + std::to_string(std::min(input.rank, 2)) +
            (input.is_per_row ? "r" : "") + (input.is_grouped ? "g" : "") + text_of(input.part);
  for (const Scalar& scalar : scalars_) text += ";" + std::string(name_of(scalar.type));
  for (const Node& node : plain.nodes_) text += ";" + text_of(node);
  constexpr std::string_view kOutputs[] = {"", "w", "c", "t"};
  for (size_t i = 0; i < plain.results_.size(); ++i)
    text += ";" + std::to_string(plain.results_[i]) +
            std::string(kOutputs[static_cast<size_t>(outputs_[i])]) + text_of(result_parts_[i]);
  return text;
}

}  // namespace opdock::formula
