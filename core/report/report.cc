// SPDX-License-Identifier: Apache-2.0
#include "report/report.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "opdock/types.hpp"

namespace opdock {

char* to_c_text(const Report& json) {
  // File names and loader messages come from outside: whatever is not UTF-8 is replaced.
  const std::string text = json.dump(-1, ' ', false, Report::error_handler_t::replace);
  char* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

void need(const void* argument, const char* name, const char* wanted) {
  if (argument != nullptr) return;
  throw Error(OPDOCK_INVALID_ARGUMENT, std::string(name) + ": found NULL, wanted " + wanted);
}

}  // namespace opdock
