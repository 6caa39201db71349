// Which library serves products, as the user wants it, and what is said where none does.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>

#include "base/reason.h"
#include "opdock/plugin.h"

namespace opdock::gemm {

// OPDOCK_GEMM: "plain" for kernels of our own, or the path of a library; empty: what is found.
// Read once; empty in a privileged program.
const std::string& wanted_library();
inline bool prefers_plain() {
  return wanted_library() == "plain";
}

// That plain kernels serve, and why: to the call's log as a warning, once for each `said`.
void say_once(const opdock_call* call, std::atomic<bool>* said, const Reason& why);

}  // namespace opdock::gemm
