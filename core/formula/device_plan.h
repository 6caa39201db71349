// Says in which pass over the row a kernel computes each node, and which nodes have a variable.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "formula/graph.h"

namespace opdock::formula {

class DevicePlan {
 public:
  // is_held: whether the kernel holds its row in registers.
  DevicePlan(const Graph& graph, bool is_held);

  // The pass in which a node is computed: a reduction in that of its operand, all that uses it in a
  // later one.
  int pass(Id id) const { return passes_[static_cast<size_t>(id)]; }
  // The pass of the results.
  int last() const { return last_; }
  // Whether a node stays in registers from pass to pass.
  bool is_kept(Id id) const { return is_kept_[static_cast<size_t>(id)]; }
  // Returns the node whose number is the same: conversions between a 16-bit float and float do
  // nothing, unless they round.
  Id same(Id id) const;
  // Whether a node is written inside the expression that uses it, instead of as a variable.
  bool is_inline(Id id) const;

 private:
  bool is_full(Id id) const { return (graph_[id].extent & kPerColumn) != 0; }
  void find_passes();
  void count_uses();
  void find_kept();

  const Graph& graph_;
  std::vector<int> passes_;
  int last_ = 0;
  std::vector<int> uses_;
  std::vector<bool> is_inside_;  // the one user of the node is computed as often as itself
  std::vector<bool> is_kept_;
};

}  // namespace opdock::formula
