// Reads which library the user wants for matrix products, and warns once if no library can be used.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>

#include "base/reason.h"
#include "opdock/plugin.h"

namespace opdock::gemm {

// Returns OPDOCK_GEMM: "plain" for Opdock's own kernels, or the path of a library. Empty: use
// whichever library is found. Read once; always empty in a privileged program.
const std::string& wanted_library();
inline bool prefers_plain() {
  return wanted_library() == "plain";
}

// Logs a warning that plain kernels are used, and why; only once for each `warned`.
void warn_once(const opdock_call* call, std::atomic<bool>* warned, const Reason& why);

}  // namespace opdock::gemm
