// SPDX-License-Identifier: Apache-2.0
#include "driver/driver.h"

namespace opdock {

Status driver_for(Backend backend, Driver** out) {
  *out = nullptr;
  switch (backend) {
    case Backend::kCuda:
      return cuda_driver(out);
    case Backend::kRocm:
      return hip_driver(out);
    case Backend::kCpu:
      return {OPDOCK_INCOMPATIBLE, "the CPU has no driver"};
    default:
      return {OPDOCK_INCOMPATIBLE,
              "device type " + std::to_string(static_cast<uint32_t>(backend)) + " is unknown"};
  }
}

}  // namespace opdock
