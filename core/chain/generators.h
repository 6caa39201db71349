// The generators of random numbers that a runtime has for ops that are given none, one a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "opdock/plugin.h"

namespace opdock {

// Any thread. Each generator belongs to this; calls advance its offset atomically.
class Generators {
 public:
  // Makes it when it is first needed.
  opdock_generator* of(opdock_device device);
  // All begin anew with this seed, those that are made later too.
  void seed(uint64_t seed);

 private:
  Mutex mutex_;
  std::map<std::pair<int32_t, int32_t>, opdock_generator> all_;
  uint64_t seed_ = 0;
  bool is_seeded_ = false;
};

}  // namespace opdock
