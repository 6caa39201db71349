// SPDX-License-Identifier: Apache-2.0
#include "reason.h"

#include <mutex>
#include <set>

namespace softgpu {
namespace {

struct Reason {
  Result result = kSuccess;
  std::string text;
};

Reason& last() {
  thread_local Reason reason;
  return reason;
}

}  // namespace

void explain(Result result, const std::string& reason) {
  last() = {result, reason};
}

void forget_reason() {
  if (last().result != kSuccess) last() = Reason();
}

const char* explained(Result result, const char* text) {
  const Reason& reason = last();
  if (reason.result != result || result == kSuccess) return text;
  static std::mutex mutex;
  static std::set<std::string>& texts = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return texts.insert(std::string(text) + ": " + reason.text).first->c_str();
}

}  // namespace softgpu
