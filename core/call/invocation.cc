// SPDX-License-Identifier: Apache-2.0
#include "call/invocation.h"

#include <cstdlib>
#include <string>

namespace opdock {

opdock_status Invocation::fail(opdock_status status, std::string_view text) {
  has_text = true;
  ErrorBuffer{call.error, call.error_size}.write(function.schema().name, ": ", text);
  return status;
}

opdock_status Invocation::is_capturing(bool* out) {
  if (capture == Asked::kUnknown) {
    bool found = false;
    if (target->driver != nullptr) {
      const Status done = target->driver->is_capturing(call.stream, &found);
      if (!done.ok()) return fail(done.status, done.text);
    }
    capture = found ? Asked::kYes : Asked::kNo;
  }
  *out = capture == Asked::kYes;
  return OPDOCK_OK;
}

opdock_status Invocation::finish_failed(opdock_status status, const char* function) {
  if (status < 0 || status > OPDOCK_IO_ERROR) {
    return fail(OPDOCK_INTERNAL, std::string(function) + " of plugin \"" + target->plugin +
                                     "\" returned " + std::to_string(status) +
                                     ", which is no status; report it to the plugin's author");
  }
  if (!has_text) {
    fail(status, std::string(function) + " of plugin \"" + target->plugin +
                     "\" failed with status " + std::to_string(status) +
                     " and gave no text; report it to the plugin's author");
  }
  return status;
}

void Invocation::release_extra() {
  for (void* memory : *extra) {
    if (target->driver != nullptr) {
      target->driver->release(target->device.index, call.stream, memory);
    } else {
      std::free(memory);
    }
  }
  delete extra;
  extra = nullptr;
}

}  // namespace opdock
