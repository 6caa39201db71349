// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "operator.h"

namespace opdock::torch {

// Calls the operator of Python for autograd, which has the same parameters and returns all results
// as one list. Takes the arguments in `stack` and leaves the results there. Throws.
void call_python(const Operator& op, StableIValue* stack);

}  // namespace opdock::torch
