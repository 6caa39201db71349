// The GPUs of one driver, each learnt about on first use, and whether this process may use them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>

#include "driver/driver.h"

namespace opdock {

inline constexpr int kMaxGpus = 64;

// What a table knows of any GPU; a driver's own adds to it. What is set is never changed.
struct GpuEntry {
  std::mutex mutex;
  std::atomic<bool> known{false};
  opdock_device_facts facts{};
  std::string arch;
};

// One a driver, never destroyed. Thread-safe. Gpu: derived from GpuEntry.
template <class Gpu>
class GpuTable {
 public:
  // type: "cuda"; driver: "the CUDA driver", for messages.
  GpuTable(const char* type, const char* driver) : type_(type), driver_(driver) {}

  // The GPU, known: two atomic reads after the first time. learn(index, gpu) fills it in; its mutex
  // is held.
  template <class Learn>
  DriverStatus find(int index, Gpu** out, const Learn& learn) {
    if (forked_.load(std::memory_order_relaxed)) {
      return {OPDOCK_DEVICE_ERROR,
              std::string("found ") + driver_ +
                  " initialised before this process was forked, wanted it initialised here; start "
                  "GPU work after fork, or start processes by spawn"};
    }
    if (index < 0 || index >= kMaxGpus) {
      return {OPDOCK_DEVICE_ERROR, std::string("found ") + type_ + ":" + std::to_string(index) +
                                       ", wanted an index below " + std::to_string(kMaxGpus)};
    }
    Gpu& gpu = gpus_[static_cast<size_t>(index)];
    *out = &gpu;
    if (gpu.known.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(gpu.mutex);
    if (gpu.known.load(std::memory_order_relaxed)) return {};
    DriverStatus done = learn(index, &gpu);
    if (done.ok()) gpu.known.store(true, std::memory_order_release);
    return done;
  }

  // Initialises the driver by start(), once; a child that is forked later may not use it.
  template <class Start>
  DriverStatus initialise(const Start& start) {
    const std::lock_guard lock(mutex_);
    if (initialised_.load(std::memory_order_relaxed)) return {};
    DriverStatus done = start();
    if (!done.ok()) return done;
    pthread_atfork(nullptr, nullptr, mark_child);
    initialised_.store(true, std::memory_order_relaxed);
    return {};
  }

 private:
  static void mark_child() { forked_.store(true, std::memory_order_relaxed); }

  static inline std::atomic<bool> initialised_{false};
  static inline std::atomic<bool> forked_{false};
  const char* type_;
  const char* driver_;
  std::mutex mutex_;
  std::array<Gpu, kMaxGpus> gpus_;
};

}  // namespace opdock
