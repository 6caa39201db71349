// The GPUs of one driver, each learnt about on first use, and whether this process may use them.
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

// What a table knows of any GPU; a driver's own adds to it. What is set is never changed. Its
// mutex, and every other one that a driver's calls are made under, is a plain one: a forked child
// is refused before it comes to any.
struct GpuEntry {
  std::mutex mutex;
  std::atomic<bool> known{false};
  opdock_device_facts facts{};
  bool has_pools = false;  // of memory, in the order of a stream
  std::string arch;
};

// One a driver, never destroyed. Thread-safe. Gpu: derived from GpuEntry.
template <class Gpu>
class GpuTable {
 public:
  // type: "cuda"; driver: "the CUDA driver", for messages.
  GpuTable(const char* type, const char* driver) : type_(type), driver_(driver) {}

  // The GPU, known: two atomic reads after the first time. learn(index, gpu) fills it in; its mutex
  // is held. The text of its failure is preceded by the GPU's name.
  template <class Learn>
  Status find(int index, Gpu** out, const Learn& learn) {
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
    touched_at_.compare_exchange_strong(nobody, forks());  // before a lock that a fork could find
    const std::lock_guard lock(gpu.mutex);
    if (gpu.known.load(std::memory_order_relaxed)) return {};
    Status done = learn(index, &gpu);
    if (done.ok()) {
      gpu.known.store(true, std::memory_order_release);
    } else {
      done.text.insert(0, std::string(type_) + ":" + std::to_string(index) + ": ");
    }
    return done;
  }

  // Initialises the driver by start(), once; a child that is forked later, or while start() runs,
  // may not use it.
  template <class Start>
  Status initialise(const Start& start) {
    const std::lock_guard lock(mutex_);
    if (initialised_) return {};
    touched_at_.store(forks());  // another thread's failure may have taken it back
    Status done = start();
    initialised_ = done.ok();
    if (!initialised_) touched_at_.store(-1);
    return done;
  }

 private:
  // How many forks there had been when the driver was first asked for a GPU; -1: it has not been.
  std::atomic<int64_t> touched_at_{-1};
  bool initialised_ = false;
  const char* type_;
  const char* driver_;
  std::mutex mutex_;
  std::array<Gpu, kMaxGpus> gpus_;
};

}  // namespace opdock
