// SPDX-License-Identifier: Apache-2.0
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
