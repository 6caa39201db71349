// The code that the CUDA and the HIP driver have in common.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "driver/driver.h"
#include "driver/gpu_table.h"

namespace opdock {

// The legacy default stream and the per-thread default stream. They are numbers instead of handles,
// the same in CUDA and in HIP (6.1).
inline void* const kStreamLegacy = reinterpret_cast<void*>(1);
inline void* const kStreamPerThread = reinterpret_cast<void*>(2);

// Returns whether `stream` is none of the default streams, which belong to the context or device
// that is current.
inline bool is_handle(void* stream) {
  return stream != nullptr && stream != kStreamLegacy && stream != kStreamPerThread;
}
// Returns whether `stream` is the legacy default stream, the only one that cannot be captured.
inline bool is_legacy(void* stream) {
  return stream == nullptr || stream == kStreamLegacy;
}

// Gpu: a struct derived from GpuEntry.
template <class Gpu>
class GpuDriver : public Driver {
 public:
  Status facts(int index, const opdock_device_facts** out) final {
    Gpu* gpu = nullptr;
    Status done = find_gpu(index, &gpu);
    if (done.ok()) *out = &gpu->facts;
    return done;
  }

  Status arch(int index, std::string* out) final {
    Gpu* gpu = nullptr;
    Status done = find_gpu(index, &gpu);
    if (done.ok()) *out = gpu->arch;
    return done;
  }

  Status allocate(int index, void* stream, uint64_t bytes, void** out) final {
    Gpu* gpu = nullptr;
    Status done = find_gpu(index, &gpu);
    if (!done.ok()) return done;
    if (has_deferred_.load(std::memory_order_relaxed)) free_deferred(*gpu, index, stream);
    return allocate_impl(*gpu, stream, bytes, out);
  }

  Status release(int index, void* stream, void* memory) final {
    Gpu* gpu = nullptr;
    Status done = find_gpu(index, &gpu);
    if (!done.ok()) return done;
    void* previous = nullptr;
    done = this->enter(index, stream, &previous);
    if (!done.ok()) return done;
    if (has_deferred_.load(std::memory_order_relaxed)) free_deferred(*gpu, index, stream);
    done = free_impl(*gpu, stream, memory);
    // A graph may free only what it has allocated, so a capture refuses other memory.
    bool is_captured = false;
    if (!done.ok() && is_capturing(stream, &is_captured).ok() && is_captured) {
      const std::lock_guard lock(deferred_mutex_);
      deferred_.push_back({index, stream, memory});
      has_deferred_.store(true, std::memory_order_relaxed);
      done = {};
    }
    this->leave(previous);
    return done;
  }

  Status is_capturing(void* stream, bool* out) final {
    *out = false;
    if (is_legacy(stream)) return {};
    int capturing = 0;
    Status done = ask_capturing(stream, &capturing);
    *out = done.ok() && capturing != 0;
    return done;
  }

 protected:
  // type, driver: see GpuTable.
  GpuDriver(const char* type, const char* driver) : gpus_(type, driver) {}

  // Fills in what the driver reports about a GPU; called once for each GPU.
  virtual Status query_device(int index, Gpu* gpu) = 0;

  Status find_gpu(int index, Gpu** out) {
    return gpus_.find(index, out, [this](int which, Gpu* gpu) { return query_device(which, gpu); });
  }

  GpuTable<Gpu> gpus_;

 private:
  // The driver's own calls. allocate_impl() and free_impl() allocate and free memory, in stream
  // order if the GPU has memory pools. ask_capturing() sets *capturing to 0 if the stream is not
  // being captured.
  virtual Status allocate_impl(const Gpu& gpu, void* stream, uint64_t bytes, void** out) = 0;
  virtual Status free_impl(const Gpu& gpu, void* stream, void* memory) = 0;
  virtual Status ask_capturing(void* stream, int* capturing) = 0;

  // Memory whose release was refused because its stream was being captured.
  struct Deferred {
    int index;
    void* stream;
    void* memory;
  };

  // Frees what a capture of this stream has kept from being freed. The stream's context is current.
  void free_deferred(const Gpu& gpu, int index, void* stream) {
    bool is_captured = false;
    if (!is_capturing(stream, &is_captured).ok() || is_captured) return;
    const std::lock_guard lock(deferred_mutex_);
    std::erase_if(deferred_, [&](const Deferred& one) {
      return one.index == index && one.stream == stream && free_impl(gpu, stream, one.memory).ok();
    });
    has_deferred_.store(!deferred_.empty(), std::memory_order_relaxed);
  }

  std::mutex deferred_mutex_;
  std::vector<Deferred> deferred_;
  std::atomic<bool> has_deferred_{false};
};

}  // namespace opdock
