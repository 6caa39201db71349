// The plan of a formula's call: the dtypes and shapes of its results, and its temporary memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fused/fused_op.h"
#include "opdock/plugin.h"

namespace opdock {

// Fills in the plan, whose state becomes the address of the FusedInstance that the run takes.
// Throws Error or formula::Error.
void plan_call(FusedOp& op, const opdock_call* call, const opdock_value* args, uint32_t num_args,
               opdock_plan* plan);

}  // namespace opdock
