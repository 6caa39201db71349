// The tensors of a call as the inputs and results of a graph, some of which are parts of tensors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <forward_list>
#include <string>
#include <vector>

#include "formula/graph.h"
#include "formula/space.h"

namespace opdock::formula {

// Inputs or results, in the order of the graph. Movable, not copyable: operands point into it.
class Operands {
 public:
  explicit Operands(size_t count) { list_.reserve(count); }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;
  Operands(Operands&&) = default;
  Operands& operator=(Operands&&) = default;

  // Adds a part of a tensor. size: of an element, in bytes. name: for errors. The tensor's shape
  // and strides stay where they are. Throws Error if its last dimension has no such parts.
  void add(const Operand& whole, Part part, int size, const std::string& name);

  const std::vector<Operand>& list() const { return list_; }

 private:
  std::vector<Operand> list_;
  std::forward_list<std::array<int64_t, kMaxDims>> shapes_;  // of the parts
};

// Returns whether an input or a result of the graph is a part of a tensor.
bool has_parts(const Graph& graph);

}  // namespace opdock::formula
