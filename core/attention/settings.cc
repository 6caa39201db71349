// SPDX-License-Identifier: Apache-2.0
#include "attention/settings.h"

#include <cstdlib>

#include "base/mutex.h"

namespace opdock::attention {
namespace {

const std::string& wanted() {
  const NoFork no_fork;
  static const auto* const wanted = [] {
    const char* const value = secure_getenv("OPDOCK_ATTENTION");
    return new std::string(value == nullptr ? "" : value);
  }();
  return *wanted;
}

}  // namespace

bool prefers_own() {
  return wanted() == "own";
}

bool plans_at_once() {
  return !wanted().empty() && !prefers_own();
}

const std::string& named_library() {
  static const std::string* const none = new std::string;
  return wanted() == "own" || wanted() == "cudnn" ? *none : wanted();
}

}  // namespace opdock::attention
