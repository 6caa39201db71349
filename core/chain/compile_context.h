// Collects what a compilation may use of a runtime.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "chain/hooks.h"
#include "chain/runtime.h"
#include "jit/compiler.h"

namespace opdock {

// Returns the runtime's cache, policy and driver version; `progress` may be NULL. Problems of the
// cache are appended to `reasons`.
JitContext jit_context(opdock_runtime* runtime, Progress* progress, std::vector<Reason>* reasons);

class Kernels;
// Returns whether this thread's current call has given these kernels up; if so, appends why.
bool is_given_up(const Kernels* kernels, std::vector<Reason>* reasons);

}  // namespace opdock
