// SPDX-License-Identifier: Apache-2.0
#include "driver/driver.h"

namespace opdock {

Driver* driver_for(Backend backend, std::string* problem) {
  std::string text;
  switch (backend) {
    case Backend::kCuda:
      return cuda_driver(problem);
    case Backend::kRocm:
      return hip_driver(problem);
    case Backend::kCpu:
      text = "the CPU has no driver";
      break;
    default:
      text = "device type " + std::to_string(static_cast<uint32_t>(backend)) + " is unknown";
  }
  if (problem != nullptr) *problem = text;
  return nullptr;
}

}  // namespace opdock
