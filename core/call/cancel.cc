// SPDX-License-Identifier: Apache-2.0
#include "call/cancel.h"

#include "base/guarded.h"
#include "call/invocation.h"

namespace opdock {
namespace {

int32_t is_cancelled(const opdock_call* call) noexcept {
  if (call == nullptr) return 0;
  const Invocation& in = *static_cast<const Invocation*>(call->host_data);
  bool answer = false;
  guarded({}, [&] {
    answer = in.function.resolver()->cancelled();
    return OPDOCK_OK;
  });
  return answer ? 1 : 0;
}

constexpr opdock_cancel kCancelTable = {sizeof(opdock_cancel), 0, is_cancelled};

}  // namespace

const opdock_cancel* cancel_extension() {
  return &kCancelTable;
}

}  // namespace opdock
