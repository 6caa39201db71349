// A runtime's random number generators, one per device, for ops that are given none.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "opdock/plugin.h"

namespace opdock {

// Thread-safe. Owns the generators; calls advance a generator's offset atomically.
class Generators {
 public:
  // Returns the device's generator, which is made when first needed.
  opdock_generator* of(opdock_device device);
  // Restarts all generators with this seed; generators made later start with it too.
  void seed(uint64_t seed);

 private:
  Mutex mutex_;
  std::map<std::pair<int32_t, int32_t>, opdock_generator> all_;
  uint64_t seed_ = 0;
  bool is_seeded_ = false;
};

}  // namespace opdock
