// SPDX-License-Identifier: Apache-2.0
#include "formula/rewrite.h"

namespace opdock::formula {
namespace {

// Adds `a`'s mean to the graph.
Id mean(Graph* graph, Id a) {
  const Id sum = graph->apply(Op::kSum, a);
  return graph->apply(Op::kDiv, sum, graph->columns());
}

// log(sum(exp(a - m))) + m, where m is the maximum, or 0 if that is infinite or NaN.
Id logsumexp(Graph* graph, Id a) {
  const Id most = graph->apply(Op::kAmax, a);
  const Id finite = graph->apply(Op::kIsfinite, most);
  const Id shift = graph->apply(Op::kWhere, finite, most, graph->constant(0.0));
  const Id powers = graph->apply(Op::kExp, graph->apply(Op::kSub, a, shift));
  const Id sum = graph->apply(Op::kLog, graph->apply(Op::kSum, powers));
  return graph->apply(Op::kAdd, sum, shift);
}

}  // namespace

Graph with_plain_reductions(const Graph& graph) {
  Graph out(graph.exact());
  std::vector<Id> place;
  for (const Input& input : graph.inputs()) out.input(input);
  for (const Scalar& scalar : graph.scalars()) out.scalar(scalar.name, scalar.type);
  for (const Node& node : graph.nodes()) {
    const auto at = [&](int i) {
      const Id arg = node.args[static_cast<size_t>(i)];
      return arg == kNone ? kNone : place[static_cast<size_t>(arg)];
    };
    Id now;
    switch (node.op) {
      // In the compute type, because an exact graph rounds each node, and a sum may be large.
      case Op::kMean:
        now = out.convert(mean(&out, out.convert(at(0), compute_type(node.type))), node.type);
        break;
      case Op::kLogsumexp:
        now = out.convert(logsumexp(&out, out.convert(at(0), compute_type(node.type))), node.type);
        break;
      case Op::kDetach:
        now = at(0);
        break;
      default:
        now = out.copy(node, {at(0), at(1), at(2)});
    }
    const auto name = graph.names().find(static_cast<Id>(place.size()));
    if (name != graph.names().end()) out.name(now, name->second);
    place.push_back(now);
  }
  for (size_t i = 0; i < graph.results().size(); ++i)
    out.add_result(place[static_cast<size_t>(graph.results()[i])], graph.output(i),
                   graph.result_parts()[i]);
  return out.simplified();
}

}  // namespace opdock::formula
