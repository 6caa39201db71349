// SPDX-License-Identifier: Apache-2.0
#include "fused/call_workspace.h"

#include <algorithm>

#include "formula/space.h"

namespace opdock {
namespace {

int64_t round_up(int64_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

}  // namespace

int64_t workspace_bytes(const std::vector<int64_t>& shape, formula::Type type) {
  int64_t bytes = formula::size_of(type);
  for (const int64_t size : shape) bytes *= size;
  return round_up(bytes);
}

int64_t partial_bytes(const FusedInstance& instance, const std::vector<formula::Operand>& inputs,
                      const std::vector<int64_t>& shape, bool on_cpu) {
  formula::Space space;
  for (size_t d = 0; d < shape.size(); ++d)
    (d + 1 < shape.size() ? space.rows : space.columns) *= shape[d];
  // Groups are rows, as make_space() says.
  for (size_t i = 0; i < instance.num_own; ++i) {
    if (!instance.graph.inputs()[i].is_grouped) continue;
    const int64_t elements = space.elements();
    int64_t groups = 1;
    for (int d = 0; d < inputs[i].rank; ++d) groups *= inputs[i].shape[d];
    space.rows = groups == elements ? 1 : groups;
    space.columns = elements / std::max<int64_t>(space.rows, 1);
  }
  return round_up(on_cpu ? instance.on_cpu.partial_bytes(space)
                         : instance.on_gpu.partial_bytes(space));
}

}  // namespace opdock
