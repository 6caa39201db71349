// SPDX-License-Identifier: Apache-2.0
#include "formula/canonical.h"

#include <algorithm>
#include <cstring>

namespace opdock::formula {
namespace {

// Returns a digest of two numbers, in which each bit depends on all of theirs.
uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t all = (a ^ (a >> 32)) * 0x9e3779b97f4a7c15 + b;
  all = (all ^ (all >> 29)) * 0xbf58476d1ce4e5b9;
  all = (all ^ (all >> 31)) * 0x94d049bb133111eb;
  return all ^ (all >> 30);
}

uint64_t own_digest(const Node& node) {
  uint64_t digest = mix(static_cast<uint64_t>(node.op), static_cast<uint64_t>(node.type));
  digest = mix(digest, static_cast<uint64_t>(node.level));
  digest = mix(digest, node.index);
  uint64_t real = 0;
  if (is_float(node.type)) std::memcpy(&real, &node.value.real, sizeof real);
  return mix(mix(digest, real), static_cast<uint64_t>(node.value.integer));
}

}  // namespace

bool is_commutative(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kMul:
    case Op::kMaximum:
    case Op::kMinimum:
    case Op::kEqual:
    case Op::kNotEqual:
    case Op::kLogicalAnd:
    case Op::kLogicalOr:
    case Op::kLogicalXor:
    case Op::kBitwiseAnd:
    case Op::kBitwiseOr:
    case Op::kBitwiseXor:
      return true;
    default:
      return false;
  }
}

std::vector<Rank> ranks(const Graph& graph) {
  std::vector<Rank> all;
  all.reserve(graph.nodes().size());
  for (const Node& node : graph.nodes()) {
    Rank rank;
    rank.op = node.op;
    rank.index = node.index;
    rank.digest = own_digest(node);
    uint64_t digests[3] = {};
    for (size_t i = 0; i < 3; ++i) {
      if (node.args[i] == kNone) continue;
      const Rank& arg = all[static_cast<size_t>(node.args[i])];
      rank.height = std::max(rank.height, arg.height + 1);
      digests[i] = arg.digest;
    }
    if (node.op == Op::kConvert || node.op == Op::kCast) {
      const uint64_t own = rank.digest;
      rank = all[static_cast<size_t>(node.args[0])];
      rank.digest = own;
    }
    if (is_commutative(node.op) && digests[1] < digests[0]) std::swap(digests[0], digests[1]);
    for (const uint64_t digest : digests) rank.digest = mix(rank.digest, digest);
    all.push_back(rank);
  }
  return all;
}

}  // namespace opdock::formula
