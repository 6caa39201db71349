// What a runtime lets a compilation use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "chain/hooks.h"
#include "chain/runtime.h"
#include "jit/compiler.h"

namespace opdock {

// The runtime's cache, policy and driver version; `progress` may be NULL. Reasons: of the cache.
JitContext jit_context(opdock_runtime* runtime, Progress* progress, std::vector<Reason>* reasons);

class Kernels;
// Whether the call that this thread is in has given these kernels up; why is then appended.
bool is_given_up(const Kernels* kernels, std::vector<Reason>* reasons);

}  // namespace opdock
