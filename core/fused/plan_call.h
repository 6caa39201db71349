// The plan of a formula's call: the dtypes and shapes of its results, and its temporary memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "fused/fused_op.h"
#include "opdock/plugin.h"

namespace opdock {

// The words of opdock_plan.state, which a plan leaves to its run.
enum PlanWord : size_t {
  kPlanInstance,  // the address of the FusedInstance
  kPlanNumber,    // ThreadCalls::number; 0: the thread keeps no calls
};

// Fills in the plan. Throws Error or formula::Error.
void plan_call(FusedOp& op, const opdock_call* call, const opdock_value* args, uint32_t num_args,
               opdock_plan* plan);

}  // namespace opdock
