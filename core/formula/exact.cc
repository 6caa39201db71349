// SPDX-License-Identifier: Apache-2.0
#include "formula/exact.h"

#include <algorithm>

namespace opdock::formula {
namespace {

// Returns whether an operation's results are numbers of its type, if its arguments are.
bool is_exact(Op op) {
  switch (op) {
    case Op::kDetach:
    case Op::kNegative:
    case Op::kAbs:
    case Op::kSign:
    case Op::kRelu:
    case Op::kFloor:
    case Op::kCeil:
    case Op::kTrunc:
    case Op::kRound:
    case Op::kMaximum:
    case Op::kMinimum:
    case Op::kClampMin:
    case Op::kClampMax:
    case Op::kAmax:
    case Op::kAmin:
    case Op::kWhere:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool is_rounded(const Graph& graph, Id id) {
  const Node& node = graph[id];
  if (!is_exact(node.op)) return false;
  return std::none_of(node.args.begin() + (node.op == Op::kWhere ? 1 : 0), node.args.end(),
                      [&](Id arg) { return arg != kNone && graph[arg].level == Level::kNumber; });
}

}  // namespace opdock::formula
