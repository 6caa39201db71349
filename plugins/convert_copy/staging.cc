// SPDX-License-Identifier: Apache-2.0
#include "staging.h"

#include <unistd.h>

#include <deque>
#include <map>
#include <mutex>

namespace convert_copy {
namespace {

constexpr unsigned kPortable = 1;  // for all contexts, CU_MEMHOSTALLOC_PORTABLE
constexpr unsigned kNoTiming = 2;  // CU_EVENT_DISABLE_TIMING

void free_pinned(const Driver& driver, const Pinned& pinned) {
  if (pinned.event != nullptr) driver.call(Function::kEventDestroy, pinned.event);
  driver.call(Function::kHostFree, pinned.memory);
}

Pinned make_pinned(const Driver& driver) {
  Pinned made;
  driver.require(Function::kHostAlloc, &made.memory, static_cast<size_t>(kBufferBytes), kPortable);
  const int result = driver.call(Function::kEventCreate, &made.event, kNoTiming);
  if (result == 0) return made;
  made.event = nullptr;
  free_pinned(driver, made);
  driver.fail(Function::kEventCreate, result);
}

}  // namespace

// The pinned buffers of one device. Lives until the process ends.
class Pool {
 public:
  explicit Pool(const Driver& driver) : driver_(driver) {}

  // Returns a free buffer or a new one; returns none when kPooled buffers are waiting for streams.
  std::optional<Pinned> try_take() {
    {
      const std::lock_guard lock(mutex_);
      for (auto pinned = idle_.begin(); pinned != idle_.end(); ++pinned) {
        if (!is_complete(*pinned)) continue;
        const Pinned found = *pinned;
        idle_.erase(pinned);
        return found;
      }
      if (idle_.size() >= kPooled) return std::nullopt;
    }
    return make_pinned(driver_);
  }

  Pinned take() {
    for (;;) {
      if (const std::optional<Pinned> found = try_take()) return *found;
      std::optional<Pinned> oldest;
      {
        const std::lock_guard lock(mutex_);
        if (idle_.empty()) continue;  // other threads took them
        oldest = idle_.front();
        idle_.pop_front();
      }
      const int result = driver_.call(Function::kEventWait, oldest->event);
      oldest->is_pending = result != 0;
      if (result == 0) return *oldest;
      give_back(*oldest);
      driver_.fail(Function::kEventWait, result);
    }
  }

  void give_back(const Pinned& pinned) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(pinned);
  }

  // At exit: frees the buffers that no stream uses any more, where the driver still allows it. The
  // others are freed with the process.
  void clear() {
    const std::lock_guard lock(mutex_);
    for (const Pinned& pinned : idle_) {
      if (!pinned.is_pending || query(pinned) == 0) free_pinned(driver_, pinned);
    }
    idle_.clear();
  }

  // Returns whether the current context is the device's primary one. The first call that finds a
  // primary context retains it, so that its memory stays valid.
  bool is_primary() {
    if (!driver_.is_cuda()) return true;
    void* current = nullptr;
    driver_.require(Function::kGetContext, &current);
    const std::lock_guard lock(mutex_);
    if (primary_ == nullptr) retain_primary();
    return current == primary_;
  }

 private:
  int query(const Pinned& pinned) const {
    return driver_.call(Function::kEventQuery, pinned.event);
  }
  bool is_complete(Pinned& pinned) {
    if (!pinned.is_pending) return true;
    const int result = query(pinned);
    if (result != 0 && result != kNotReady) driver_.fail(Function::kEventQuery, result);
    pinned.is_pending = result != 0;
    return result == 0;
  }

  // Does not create a primary context where none is active, because an inactive one cannot be the
  // current one. Neither can one whose state the driver does not report.
  void retain_primary() {
    int device = 0, is_active = 0;
    unsigned flags = 0;
    driver_.require(Function::kGetDevice, &device);
    if (driver_.call(Function::kPrimaryState, device, &flags, &is_active) != 0) return;
    if (is_active != 0) driver_.require(Function::kPrimaryRetain, &primary_, device);
  }

  const Driver& driver_;
  std::mutex mutex_;
  std::deque<Pinned> idle_;  // in the order in which they were given back
  void* primary_ = nullptr;
};

namespace {

// The pools of all devices. Never destroyed, because threads may still use them while the process
// ends.
class Pools {
 public:
  Pool* of(const Driver& driver, opdock::Device device) {
    const std::lock_guard lock(mutex_);
    return &pools_.try_emplace({device.type, device.index}, driver).first->second;
  }
  void clear() {
    if (owner_ != getpid()) return;  // this is a forked child
    const std::lock_guard lock(mutex_);
    for (auto& [device, pool] : pools_) pool.clear();
  }

 private:
  const pid_t owner_ = getpid();
  std::mutex mutex_;
  std::map<std::pair<int32_t, int32_t>, Pool> pools_;
};

Pools& pools() {
  struct AtExit {
    Pools& all;
    // Runs before the driver's own exit handler, because the driver was initialised earlier.
    ~AtExit() { all.clear(); }
  };
  static const AtExit at_exit{*new Pools};
  return at_exit.all;
}

}  // namespace

Staging::Staging(const opdock::Call& call)
    : driver_(Driver::of(call)), pool_(pools().of(driver_, call.device())), stream_(call.stream()) {
  if (!pool_->is_primary()) pool_ = nullptr;
}

Buffer Staging::take() {
  return hold(pool_ == nullptr ? make_pinned(driver_) : pool_->take());
}

std::optional<Buffer> Staging::try_take() {
  if (pool_ == nullptr) return take();
  if (const std::optional<Pinned> found = pool_->try_take()) return hold(*found);
  return std::nullopt;
}

void Buffer::copied(Function function, void* to, const void* from, int64_t bytes) {
  driver_->require(function, to, from, static_cast<size_t>(bytes), stream_);
  pinned_.is_pending = true;
  const int result = driver_->call(Function::kEventRecord, pinned_.event, stream_);
  if (result == 0) return;
  // Without the event, only waiting for the whole stream shows that the copy is done.
  driver_->call(Function::kStreamWait, stream_);
  pinned_.is_pending = false;
  driver_->fail(Function::kEventRecord, result);
}

void Buffer::to_device(void* to, int64_t bytes) {
  copied(Function::kToDevice, to, pinned_.memory, bytes);
}

void Buffer::from_device(const void* from, int64_t bytes) {
  copied(Function::kToHost, pinned_.memory, from, bytes);
}

void Buffer::wait() {
  driver_->require(Function::kEventWait, pinned_.event);
  pinned_.is_pending = false;
}

Buffer::~Buffer() {
  if (pinned_.memory == nullptr) return;
  if (pool_ != nullptr) {
    pool_->give_back(pinned_);
  } else {
    driver_->call(Function::kStreamWait, stream_);
    free_pinned(*driver_, pinned_);
  }
}

}  // namespace convert_copy
