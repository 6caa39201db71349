// SPDX-License-Identifier: Apache-2.0
#include "call/tuning.h"

#include "call/invocation.h"
#include "tune/tuning.h"

namespace opdock {
namespace {

int32_t choice(const opdock_call* call, uint64_t question, uint32_t count) noexcept {
  const Invocation& in = *static_cast<const Invocation*>(call->host_data);
  const Tuning* const tuning = in.target->tuning;
  if (tuning == nullptr) return -1;
  return tuning->choice(question, count,
                        [&]() -> const std::string& { return in.function.schema().name; });
}

constexpr opdock_tuning kTuningTable = {sizeof(opdock_tuning), 0, choice};

}  // namespace

const opdock_tuning* tuning_extension() {
  return &kTuningTable;
}

}  // namespace opdock
