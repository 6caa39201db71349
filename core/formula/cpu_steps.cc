// SPDX-License-Identifier: Apache-2.0
#include "formula/cpu_steps.h"

#include <algorithm>

#include "formula/device_expressions.h"
#include "formula/exact.h"

namespace opdock::formula {
namespace {

using What = CpuStep::What;

bool is_narrow(Type type) {
  return is_integer(type) && size_of(type) < 4;
}

// Returns whether an operation's result is a number of its integer type, if its arguments are.
bool needs_no_wrap(Op op) {
  switch (op) {
    case Op::kSign:
    case Op::kRelu:
    case Op::kMaximum:
    case Op::kMinimum:
    case Op::kClampMin:
    case Op::kClampMax:
    case Op::kBitwiseAnd:
    case Op::kBitwiseOr:
    case Op::kBitwiseXor:
      return true;
    default:
      return false;
  }
}

std::string reduction(Op op) {
  switch (op) {
    case Op::kSum:
      return "Sum";
    case Op::kMean:
      return "Mean";
    case Op::kProd:
      return "Prod";
    case Op::kAmax:
      return "Amax";
    case Op::kAmin:
      return "Amin";
    case Op::kArgmax:
      return "Argmax";
    case Op::kArgmin:
      return "Argmin";
    case Op::kAny:
      return "Any";
    default:
      return "All";
  }
}

class Lowering {
 public:
  Lowering(const Graph& graph, bool is_named) : graph_(graph), is_named_(is_named) {}

  CpuSteps run() {
    for (Id id = 0; id < graph_.size(); ++id) {
      const auto before = steps_.all.size();
      const int step = lower(id);
      place_.push_back(step);
      if (steps_.all.size() == before) continue;  // an argument of it
      if (!is_named_) continue;
      at(step).name = variable_name(graph_, id);
      at(step).is_named = graph_.names().contains(id);
    }
    for (const Id id : graph_.results()) steps_.results.push_back(place_[static_cast<size_t>(id)]);
    steps_.has_whole_rows = graph_.has_reductions();
    for (const CpuStep& step : steps_.all)
      if (step.what == What::kReduce) steps_.passes = std::max(steps_.passes, step.stage);
    // Results of columns have a pass of their own after the last reduction.
    for (size_t i = 0; i < steps_.results.size(); ++i)
      if (graph_.has_columns(i))
        steps_.passes = std::max(steps_.passes, at(steps_.results[i]).stage + 1);
    return std::move(steps_);
  }

 private:
  CpuStep& at(int i) { return steps_.all[static_cast<size_t>(i)]; }

  int add(CpuStep step) {
    const bool reduces = step.what == What::kReduce;
    for (const int arg : step.args) {
      if (arg < 0) continue;
      step.extent |= at(arg).extent;
      step.stage = std::max(step.stage, at(arg).stage + (reduces ? 1 : 0));
    }
    if (reduces) step.extent = static_cast<uint8_t>(step.extent & kPerRow);
    step.name = "s" + std::to_string(steps_.all.size());
    steps_.all.push_back(std::move(step));
    return static_cast<int>(steps_.all.size()) - 1;
  }
  int call(std::string function, Type type, int a, int b = -1, int c = -1) {
    CpuStep step;
    step.function = std::move(function);
    step.type = type;
    step.args = {a, b, c};
    return add(std::move(step));
  }
  int reduce(Op op, Type type, int a) {
    // Bools and small integers are added up as int64.
    if ((op == Op::kSum || op == Op::kProd) && !is_float(at(a).type) && at(a).type != Type::kInt64)
      a = call("to_longs", Type::kInt64, a);
    CpuStep step;
    step.what = What::kReduce;
    step.type = type;
    step.function = reduction(op);
    if (op != Op::kAny && op != Op::kAll) step.function += "<" + cpu_value_type(at(a).type) + ">";
    step.args[0] = a;
    return add(std::move(step));
  }
  int convert(int a, Type to) {
    const Type from = at(a).type;
    if (from == to) return a;
    if (cpu_value_type(from) != cpu_value_type(to)) {
      std::string name = cpu_value_type(to);
      name[0] = static_cast<char>(name[0] - 'A' + 'a');
      a = call("to_" + name, to, a);
    }
    // Each uint8 is an int16, and each bool is any integer.
    const bool fits = from == Type::kBool || (from == Type::kUint8 && to == Type::kInt16) ||
                      (from == Type::kInt8 && to == Type::kInt16);
    if (is_narrow(to) && !fits) return call("wrapped<" + cpu_element_type(to) + ">", to, a);
    return a;
  }
  // log(sum(exp(a))), with the largest number subtracted before and added after, unless that is
  // infinite.
  int logsumexp(Type type, int a) {
    const int most = reduce(Op::kAmax, type, a);
    CpuStep zero;
    zero.what = What::kConstant;
    zero.type = type;
    const int shift = call("where", type, call("isinf", Type::kBool, most), add(zero), most);
    const int power = call("exp", type, call("sub", type, a, shift));
    return call("add", type, call("log", type, reduce(Op::kSum, type, power)), shift);
  }

  int lower(Id id) {
    const Node& node = graph_[id];
    int made = lower_unrounded(node);
    const bool computes = !is_leaf(node.op) && node.op != Op::kConvert && node.op != Op::kCast &&
                          node.op != Op::kWhere && node.op != Op::kDetach && !is_reduction(node.op);
    if (computes && is_narrow(node.type) && !needs_no_wrap(node.op))
      made = call("wrapped<" + cpu_element_type(node.type) + ">", node.type, made);
    if (compute_type(node.type) != node.type && graph_.rounds(id) && !is_rounded(graph_, id))
      made = call("rounded<" + cpu_element_type(node.type) + ">", node.type, made);
    return made;
  }

  int lower_unrounded(const Node& node) {
    std::array<int, 3> args = {-1, -1, -1};
    for (size_t i = 0; i < 3; ++i)
      if (node.args[i] != kNone) args[i] = place_[static_cast<size_t>(node.args[i])];
    CpuStep leaf;
    leaf.type = node.type;
    leaf.index = node.index;
    leaf.value = node.value;
    leaf.extent = node.extent;
    switch (node.op) {
      case Op::kInput:
        leaf.what = What::kInput;
        return add(leaf);
      case Op::kScalar:
        leaf.what = What::kScalar;
        return add(leaf);
      case Op::kConstant:
        leaf.what = What::kConstant;
        return add(leaf);
      case Op::kRow:
        leaf.what = What::kRow;
        return add(leaf);
      case Op::kColumn:
        leaf.what = What::kColumn;
        return add(leaf);
      case Op::kColumns:
        leaf.what = What::kColumns;
        return add(leaf);
      case Op::kConvert:
      case Op::kCast:
        return convert(args[0], node.type);
      case Op::kDetach:
        return args[0];
      case Op::kLogsumexp:
        return logsumexp(node.type, args[0]);
      default:
        break;
    }
    if (is_reduction(node.op)) return reduce(node.op, node.type, args[0]);
    return call(std::string(operation(node.op).name), node.type, args[0], args[1], args[2]);
  }

  const Graph& graph_;
  const bool is_named_;
  CpuSteps steps_;
  std::vector<int> place_;
};

}  // namespace

std::string cpu_value_type(Type type) {
  switch (type) {
    case Type::kBool:
      return "Bools";
    case Type::kInt64:
      return "Longs";
    case Type::kFloat64:
      return "Doubles";
    default:
      return is_float(type) ? "Floats" : "Ints";
  }
}

std::string cpu_element_type(Type type) {
  switch (type) {
    case Type::kBool:
      return "Bool";
    case Type::kFloat16:
      return "Half";
    case Type::kBfloat16:
      return "BFloat16";
    case Type::kFloat32:
      return "float";
    case Type::kFloat64:
      return "double";
    default:
      return std::string(name_of(type)) + "_t";
  }
}

CpuSteps cpu_steps(const Graph& graph, bool is_named) {
  return Lowering(graph, is_named).run();
}

}  // namespace opdock::formula
