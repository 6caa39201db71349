// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <mutex>

namespace softgpu {
namespace {

std::mutex settings_mutex;
Settings current;
uint64_t launches = 0;

}  // namespace

void configure(const Settings& settings) {
  const std::lock_guard<std::mutex> lock(settings_mutex);
  current = settings;
  launches = 0;
}

Settings current_settings() {
  const std::lock_guard<std::mutex> lock(settings_mutex);
  return current;
}

uint64_t next_launch_number() {
  const std::lock_guard<std::mutex> lock(settings_mutex);
  return ++launches;
}

}  // namespace softgpu
