// The GPUs of one driver. Each GPU is queried on first use. The table refuses processes that must
// not use the driver: children forked after its initialisation.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>

#include "base/mutex.h"
#include "driver/driver.h"

namespace opdock {

inline constexpr int kMaxGpus = 64;

// The facts that a table stores about any GPU; a driver's own struct adds to them. Members that
// have been set never change. This mutex, like every other mutex that is held during a driver's
// call, is a std::mutex and not fork-aware: a forked child is refused before it could lock one.
struct GpuEntry {
  std::mutex mutex;
  std::atomic<bool> known{false};
  opdock_device_facts facts{};
  bool has_pools = false;  // stream-ordered memory pools
  std::string arch;
};

// There is one table per driver, never destroyed. Thread-safe. Gpu: a struct derived from GpuEntry.
template <class Gpu>
class GpuTable {
 public:
  // For messages. type: "cuda"; driver: "the CUDA driver".
  GpuTable(const char* type, const char* driver) : type_(type), driver_(driver) {}

  // Returns a GPU that has been queried; two atomic reads after the first time. query(index, gpu)
  // queries it, with its mutex held. If query() fails, the GPU's name is put before the text.
  template <class Query>
  Status find(int index, Gpu** out, const Query& query) {
    if (const int64_t at = touched_at_.load(std::memory_order_relaxed); at >= 0 && at != forks()) {
      return {
          OPDOCK_DEVICE_ERROR,
          std::string(driver_) +
              " was initialised before this process was forked, and cannot be used in it. Start "
              "GPU work after fork, or start processes by spawn"};
    }
    if (index < 0 || index >= kMaxGpus) {
      return {OPDOCK_DEVICE_ERROR, "there is no " + std::string(type_) + ":" +
                                       std::to_string(index) + ": indices end at " +
                                       std::to_string(kMaxGpus - 1)};
    }
    Gpu& gpu = gpus_[static_cast<size_t>(index)];
    *out = &gpu;
    if (gpu.known.load(std::memory_order_acquire)) return {};
    int64_t nobody = -1;
    // Set before the lock is taken, so that a child forked while it is held is refused.
    touched_at_.compare_exchange_strong(nobody, forks());
    const std::lock_guard lock(gpu.mutex);
    if (gpu.known.load(std::memory_order_relaxed)) return {};
    Status done = query(index, &gpu);
    if (done.ok()) {
      gpu.known.store(true, std::memory_order_release);
    } else {
      done.text.insert(0, std::string(type_) + ":" + std::to_string(index) + ": ");
    }
    return done;
  }

  // Initialises the driver once, with start(). A child that is forked later, or while start() runs,
  // must not use the driver.
  template <class Start>
  Status initialise(const Start& start) {
    const std::lock_guard lock(mutex_);
    if (initialised_) return {};
    touched_at_.store(forks());  // another thread's failed start() may have reset it
    Status done = start();
    initialised_ = done.ok();
    if (!initialised_) touched_at_.store(-1);
    return done;
  }

 private:
  // The value of forks() when the driver was first asked for a GPU; -1 if it has not been.
  std::atomic<int64_t> touched_at_{-1};
  bool initialised_ = false;
  const char* type_;
  const char* driver_;
  std::mutex mutex_;
  std::array<Gpu, kMaxGpus> gpus_;
};

}  // namespace opdock
