// Translates the nodes of a graph to kernels.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <string>

#include "formula/cpu_program.h"
#include "formula/exact.h"

namespace opdock::formula {
namespace {

CpuKind kind_of(Type type) {
  if (type == Type::kBool) return CpuKind::kBool;
  if (is_integer(type)) return CpuKind::kInteger;
  return type == Type::kFloat64 ? CpuKind::kDouble : CpuKind::kFloat;
}

Code code_of(Op op) {
  return static_cast<Code>(static_cast<int>(op) - static_cast<int>(Op::kCast) - 1);
}

class Lowering {
 public:
  Lowering(const Graph& graph, const Kernels& kernels) : graph_(graph), kernels_(kernels) {}

  Numbers run() {
    for (Id id = 0; id < graph_.size(); ++id) place_.push_back(lower(id));
    for (size_t i = 0; i < graph_.results().size(); ++i) {
      const Id id = graph_.results()[i];
      numbers_.outputs.push_back(graph_.output(i));
      numbers_.has_columns.push_back(graph_.has_columns(i));
      numbers_.results.push_back(place_[static_cast<size_t>(id)]);
      numbers_.result_types.push_back(graph_[id].type);
    }
    numbers_.has_reductions = graph_.has_reductions();
    return std::move(numbers_);
  }

 private:
  Number& at(int32_t i) { return numbers_.all[static_cast<size_t>(i)]; }

  int32_t add(Number number) {
    const bool reduces = number.what == Number::What::kReduce;
    for (const int32_t arg : number.args) {
      if (arg < 0) continue;
      number.extent |= at(arg).extent;
      number.stage = std::max(number.stage, at(arg).stage + (reduces ? 1 : 0));
    }
    if (reduces) number.extent = static_cast<uint8_t>(number.extent & kPerRow);
    numbers_.all.push_back(number);
    return static_cast<int32_t>(numbers_.all.size()) - 1;
  }
  int32_t compute(Kernel kernel, CpuKind kind, int32_t a, int32_t b = -1, int32_t c = -1,
                  Code code = Code::kNumCodes) {
    if (kernel == nullptr) throw Error("found an operation without a kernel; please report this");
    Number number;
    number.kind = kind;
    number.kernel = kernel;
    number.args = {a, b, c};
    number.code = code;
    return add(number);
  }
  // An operation whose arguments and result are of one kind.
  int32_t apply(Code code, int32_t a, int32_t b = -1, int32_t c = -1) {
    const CpuKind kind = at(c >= 0 ? c : b >= 0 ? b : a).kind;
    return compute(kernels_.operations[static_cast<int>(code)][static_cast<int>(kind)], kind, a, b,
                   c, code);
  }
  int32_t constant(CpuKind kind, Value value) {
    Number number;
    number.what = Number::What::kConstant;
    number.kind = kind;
    number.value = value;
    return add(number);
  }
  int32_t convert(int32_t a, CpuKind to) {
    const CpuKind from = at(a).kind;
    if (from == to) return a;
    return compute(kernels_.convert[static_cast<int>(from)][static_cast<int>(to)], to, a);
  }
  int32_t wrap(int32_t a, Type type) {
    const Kernel kernel = kernels_.wrap[static_cast<int>(type)];
    return kernel == nullptr ? a : compute(kernel, CpuKind::kInteger, a);
  }
  int32_t round(int32_t a, Type type) {
    const Kernel kernel = kernels_.round[static_cast<int>(type)];
    return kernel == nullptr ? a : compute(kernel, CpuKind::kFloat, a);
  }
  int32_t reduce(Code code, CpuKind kind, int32_t a) {
    Number number;
    number.what = Number::What::kReduce;
    number.kind = kind;
    number.code = code;
    number.args[0] = a;
    number.reduce = kernels_.reduce[static_cast<int>(code)][static_cast<int>(at(a).kind)];
    if (number.reduce == nullptr)
      throw Error("found a reduction without a kernel; please report this");
    return add(number);
  }
  // log(sum(exp(a))), with the largest number subtracted before and added after, unless that is
  // infinite.
  int32_t logsumexp(int32_t a) {
    const CpuKind kind = at(a).kind;
    const int32_t most = reduce(Code::kAmax, kind, a), zero = constant(kind, {});
    const int32_t is_infinite =
        compute(kernels_.operations[static_cast<int>(Code::kIsinf)][static_cast<int>(kind)],
                CpuKind::kBool, most);
    const int32_t shift = apply(Code::kWhere, is_infinite, zero, most);
    const int32_t power = apply(Code::kExp, apply(Code::kSub, a, shift));
    return apply(Code::kAdd, apply(Code::kLog, reduce(Code::kSum, kind, power)), shift);
  }

  int32_t lower(Id id) {
    const Node& node = graph_[id];
    int32_t made = lower_unrounded(node);
    if (is_integer(node.type) && !is_leaf(node.op) && node.op != Op::kConvert &&
        node.op != Op::kCast && node.op != Op::kWhere && !is_reduction(node.op))
      made = wrap(made, node.type);
    return graph_.rounds(id) && !is_rounded(graph_, id) ? round(made, node.type) : made;
  }

  int32_t lower_unrounded(const Node& node) {
    const CpuKind kind = kind_of(node.type);
    std::array<int32_t, 3> args = {-1, -1, -1};
    for (size_t i = 0; i < 3; ++i)
      if (node.args[i] != kNone) args[i] = place_[static_cast<size_t>(node.args[i])];
    const auto [a, b, c] = args;
    Number leaf;
    leaf.kind = kind;
    leaf.type = node.type;
    leaf.index = node.index;
    leaf.value = node.value;
    leaf.extent = node.extent;
    switch (node.op) {
      case Op::kInput:
        leaf.what = Number::What::kInput;
        return add(leaf);
      case Op::kScalar:
        leaf.what = Number::What::kScalar;
        return add(leaf);
      case Op::kConstant:
        leaf.what = Number::What::kConstant;
        return add(leaf);
      case Op::kRow:
        leaf.what = Number::What::kRow;
        return add(leaf);
      case Op::kColumn:
        leaf.what = Number::What::kColumn;
        return add(leaf);
      case Op::kColumns:
        leaf.what = Number::What::kColumns;
        return add(leaf);
      case Op::kConvert:
      case Op::kCast: {
        const int32_t to = convert(a, kind);
        return kind == CpuKind::kInteger ? wrap(to, node.type) : to;
      }
      case Op::kDetach:
        return a;
      default:
        break;
    }
    const Code code = code_of(node.op);
    if (node.op == Op::kLogsumexp) return logsumexp(a);
    if (is_reduction(node.op)) return reduce(code, kind, a);
    const Rule rule = operation(node.op).rule;
    CpuKind operands = at(node.op == Op::kWhere ? b : a).kind;
    if (rule == Rule::kTest && operands != CpuKind::kFloat && operands != CpuKind::kDouble) {
      if (node.op == Op::kSignbit && operands == CpuKind::kInteger) {
        return compute(kernels_.operations[static_cast<int>(code)][static_cast<int>(operands)],
                       kind, a);
      }
      // Known, but not a constant: a constant would be the same in the whole row, and so would what
      // is computed of it, which the graph says has a number for each column.
      const Code known = node.op == Op::kIsfinite ? Code::kEqual : Code::kNotEqual;
      return compute(kernels_.operations[static_cast<int>(known)][static_cast<int>(operands)], kind,
                     a, a, -1, known);
    }
    return compute(kernels_.operations[static_cast<int>(code)][static_cast<int>(operands)], kind, a,
                   b, c, code);
  }

  const Graph& graph_;
  const Kernels& kernels_;
  Numbers numbers_;
  std::vector<int32_t> place_;
};

}  // namespace

Numbers lower(const Graph& graph, const Kernels& kernels) {
  return Lowering(graph, kernels).run();
}

}  // namespace opdock::formula
