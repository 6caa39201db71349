// SPDX-License-Identifier: Apache-2.0
#include "chain/generators.h"

#include <mutex>
#include <random>

namespace opdock {

opdock_generator* Generators::of(opdock_device device) {
  const std::lock_guard lock(mutex_);
  if (!is_seeded_) {
    std::random_device entropy;
    seed_ = uint64_t{entropy()} << 32 | entropy();
    is_seeded_ = true;
  }
  opdock_generator fresh{};
  fresh.struct_size = sizeof fresh;
  fresh.seed = seed_;
  return &all_.try_emplace({device.type, device.index}, fresh).first->second;
}

void Generators::seed(uint64_t seed) {
  const std::lock_guard lock(mutex_);
  seed_ = seed;
  is_seeded_ = true;
  for (auto& [device, generator] : all_) {
    // Calls on other threads read both members without the lock.
    __atomic_store_n(&generator.seed, seed, __ATOMIC_RELAXED);
    __atomic_store_n(&generator.offset, 0, __ATOMIC_RELAXED);
  }
}

}  // namespace opdock
