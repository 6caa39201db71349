// The functions of opdock.h that create and destroy a runtime and name the version and statuses.
// SPDX-License-Identifier: Apache-2.0
#include "chain/runtime.h"

#include "base/guarded.h"
#include "opdock/opdock.h"

const char* opdock_version(void) {
  return OPDOCK_VERSION;
}

const char* opdock_status_name(opdock_status status) {
  switch (status) {
    case OPDOCK_OK:
      return "ok";
    case OPDOCK_INVALID_ARGUMENT:
      return "invalid argument";
    case OPDOCK_UNSUPPORTED:
      return "unsupported";
    case OPDOCK_OUT_OF_MEMORY:
      return "out of memory";
    case OPDOCK_DEVICE_ERROR:
      return "device error";
    case OPDOCK_DEVICE_LOST:
      return "device lost";
    case OPDOCK_NOT_FOUND:
      return "not found";
    case OPDOCK_INCOMPATIBLE:
      return "incompatible";
    case OPDOCK_CANCELLED:
      return "cancelled";
    case OPDOCK_INTERNAL:
      return "internal error";
    case OPDOCK_IO_ERROR:
      return "I/O error";
    default:
      return "unknown status";
  }
}

opdock_status opdock_runtime_create(const opdock_options* options, opdock_runtime** out,
                                    char* error, uint32_t error_size) {
  const opdock::ErrorBuffer buffer{error, error_size};
  return opdock::guarded(buffer, [&] {
    if (out == nullptr) {
      return buffer.fail(OPDOCK_INVALID_ARGUMENT,
                         "out: found NULL, wanted a place for the runtime");
    }
    *out = nullptr;
    *out = new opdock_runtime(options);
    return OPDOCK_OK;
  });
}

void opdock_runtime_destroy(opdock_runtime* runtime) {
  delete runtime;
}
