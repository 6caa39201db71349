// SPDX-License-Identifier: Apache-2.0
#include "gemm/fallback_warning.h"

#include <cstdlib>

#include "base/mutex.h"

namespace opdock::gemm {

const std::string& wanted_library() {
  const NoFork no_fork;
  static const auto* const wanted = [] {
    const char* const value = secure_getenv("OPDOCK_GEMM");
    return new std::string(value == nullptr ? "" : value);
  }();
  return *wanted;
}

void warn_once(const opdock_call* call, std::atomic<bool>* warned, const Reason& why) {
  if (warned->exchange(true, std::memory_order_relaxed)) return;
  const std::string text =
      "products of matrices are computed by plain kernels, which are slow: " + to_text(why);
  call->host->log(call, 2, text.c_str());
}

}  // namespace opdock::gemm
