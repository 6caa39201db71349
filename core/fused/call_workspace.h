// Where a call of gradients has its temporary memory: the partial sums of its graph first, then the
// operands of row_sums().
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "formula/operands.h"
#include "fused/fused_instance.h"

namespace opdock {

inline constexpr int64_t kWorkspaceAlignment = 256;

// Returns the bytes of a contiguous tensor, up to where the next one begins.
int64_t workspace_bytes(const std::vector<int64_t>& shape, formula::Type type);

// Returns the bytes of the graph's partial sums, up to where a tensor begins. inputs: of
// read_tensors().
int64_t partial_bytes(const FusedInstance& instance, const std::vector<formula::Operand>& inputs,
                      const std::vector<int64_t>& shape, bool on_cpu);

}  // namespace opdock
