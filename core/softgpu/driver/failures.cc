// SPDX-License-Identifier: Apache-2.0
#include "failures.h"

#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>

namespace softgpu {

const Failure* strike(const char* function) {
  static std::mutex mutex;
  static std::map<std::string, int>& counts = *new std::map<std::string, int>;
  int count = 0;
  {
    const std::lock_guard lock(mutex);
    count = ++counts[function];
  }
  for (const Failure& failure : config().failures) {
    if (failure.function != function || (failure.call != 0 && failure.call != count)) continue;
    if (failure.crash) std::abort();
    while (failure.hang) pause();
    return &failure;
  }
  return nullptr;
}

}  // namespace softgpu
