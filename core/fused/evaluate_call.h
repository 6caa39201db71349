// A call of a formula in float64 by evaluate(): the oracle of tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fused/fused_op.h"
#include "opdock/plugin.h"

namespace opdock {

// Computes the formula for arguments on the CPU. results: contiguous tensors, of float64 where the
// formula's result is a float. Throws Error or formula::Error.
void evaluate_call(const FusedInstance& instance, const opdock_value* args,
                   const opdock_value* results);

}  // namespace opdock
