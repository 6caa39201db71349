// The run of a formula's call, as its plan has chosen it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fused/fused_op.h"
#include "opdock/plugin.h"

namespace opdock {

// instance: from the plan. Throws Error or formula::Error.
opdock_status run_call(const FusedOp& op, FusedInstance& instance, const opdock_call* call,
                       const opdock_value* args, uint32_t num_args, const opdock_value* results,
                       uint32_t num_results);

}  // namespace opdock
