// Runs the calls of gradients that are summed over rows: the graph, which leaves partial sums, and
// then the sums of what it has computed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fused/fused_instance.h"
#include "opdock/plugin.h"

namespace opdock {

// Throws Error or formula::Error.
opdock_status run_sums(const opdock_call* call, FusedInstance& instance, const opdock_value* args,
                       const opdock_value* results);

}  // namespace opdock
