// SPDX-License-Identifier: Apache-2.0
#include "formula/device_plan.h"

#include <algorithm>

#include "formula/device_expressions.h"

namespace opdock::formula {

DevicePlan::DevicePlan(const Graph& graph, bool is_held) : graph_(graph) {
  find_passes();
  count_uses();
  is_kept_.assign(graph.nodes().size(), false);
  if (is_held) find_kept();
}

void DevicePlan::find_passes() {
  passes_.assign(graph_.nodes().size(), 0);
  for (Id id = 0; id < graph_.size(); ++id) {
    for (const Id arg : graph_[id].args) {
      if (arg == kNone) continue;
      const int after = is_reduction(graph_[arg].op) ? 1 : 0;
      int& pass_of = passes_[static_cast<size_t>(id)];
      pass_of = std::max(pass_of, pass(arg) + after);
    }
    if (is_reduction(graph_[id].op)) last_ = std::max(last_, pass(id) + 1);
  }
}

void DevicePlan::count_uses() {
  uses_.assign(graph_.nodes().size(), 0);
  is_inside_.assign(graph_.nodes().size(), false);
  std::vector<int> lengths(graph_.nodes().size(), 1);
  for (Id id = 0; id < graph_.size(); ++id) {
    for (const Id arg : graph_[id].args) {
      if (arg == kNone) continue;
      const auto at = static_cast<size_t>(same(arg));
      ++uses_[at];
      const bool stays = is_full(id) == is_full(arg) && pass(id) == pass(arg);
      is_inside_[at] = stays && same(id) == id && lengths[at] < 6;
      lengths[static_cast<size_t>(id)] += is_inside_[at] ? lengths[at] : 1;
    }
  }
  for (const Id id : graph_.results()) uses_[static_cast<size_t>(same(id))] += 2;
}

// A number that a later pass uses stays in registers, unless it is an input.
void DevicePlan::find_kept() {
  for (Id id = 0; id < graph_.size(); ++id) {
    for (const Id direct : graph_[id].args) {
      const Id arg = direct == kNone ? kNone : same(direct);
      if (arg == kNone || !is_full(arg) || is_leaf(graph_[arg].op)) continue;
      if (pass(arg) < pass(id) && same(id) == id) is_kept_[static_cast<size_t>(arg)] = true;
    }
  }
  for (const Id result : graph_.results()) {
    const Id id = same(result);
    if (is_full(id) && pass(id) < last_ && !is_leaf(graph_[id].op))
      is_kept_[static_cast<size_t>(id)] = true;
  }
}

Id DevicePlan::same(Id id) const {
  while (graph_[id].op == Op::kConvert && !graph_.exact() &&
         number_type(graph_[id].type) == number_type(graph_[graph_[id].args[0]].type) &&
         is_float(graph_[id].type))
    id = graph_[id].args[0];
  return id;
}

bool DevicePlan::is_inline(Id id) const {
  const auto at = static_cast<size_t>(id);
  return same(id) != id ||
         (uses_[at] == 1 && !is_leaf(graph_[id].op) && !is_kept_[at] &&
          !is_reduction(graph_[id].op) && !graph_.names().contains(id) && is_inside_[at]);
}

}  // namespace opdock::formula
