// An order of a graph's nodes that depends only on what they compute.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "formula/graph.h"

namespace opdock::formula {

// Returns whether the operation's first two arguments may be swapped, which changes no result.
bool is_commutative(Op op);

// Decides where a node stands among the arguments of a commutative operation.
struct Rank {
  // The number of operations between the node and its farthest leaf. A conversion does not count:
  // it has the place of what it converts.
  int height = 0;
  Op op = Op::kConstant;
  uint32_t index = 0;
  uint64_t digest = 0;  // of all that the node depends on

  // Leaves come first, in the order of the parameters, and then what needs the most operations. So
  // the operations follow each other, without loads and shorter ones between them: the interpreter
  // makes chains of them.
  bool operator<(const Rank& other) const {
    if ((height == 0) != (other.height == 0)) return height == 0;
    return std::tie(other.height, op, index, digest) <
           std::tie(height, other.op, other.index, other.digest);
  }
};

// Returns the rank of each node. It is the same in each process, whatever the order in which nodes
// and the arguments of commutative operations were made. Different nodes may have the same rank,
// though hardly ever.
std::vector<Rank> ranks(const Graph& graph);

}  // namespace opdock::formula
