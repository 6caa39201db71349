// Pinned host memory through which copies between the host and a GPU go. The drivers copy from
// there and to there by themselves, while the host and the stream go on.
//
// Each device has a pool of buffers that calls share, on any threads. A buffer that a stream is
// still to read or write is not taken before its event says that this is done. Where kPooled
// buffers wait for streams, the next one is waited for; while there are fewer, or other calls hold
// them, one more is made. They are kept until the process ends, and then given back as far as
// nothing is to be waited for. A forked child, for which the driver is of no use, leaves them
// alone.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "driver.h"

namespace convert_copy {

inline constexpr int64_t kBufferBytes = 2 << 20;
inline constexpr size_t kPooled = 8;

class Pool;

struct Pinned {
  void* memory = nullptr;
  void* event = nullptr;
  bool is_pending = false;  // the event has been recorded, and was not yet seen to have come
};

// A buffer that a call holds; goes back to the pool with it. Moves.
class Buffer {
 public:
  Buffer(const Driver& driver, Pool* pool, void* stream, Pinned pinned)
      : driver_(&driver), pool_(pool), stream_(stream), pinned_(pinned) {}
  Buffer(Buffer&& other) noexcept
      : driver_(other.driver_), pool_(other.pool_), stream_(other.stream_), pinned_(other.pinned_) {
    other.pinned_.memory = nullptr;
  }
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer();

  void* memory() const { return pinned_.memory; }
  // Enqueue a copy of so many bytes on the call's stream.
  void to_device(void* to, int64_t bytes);
  void from_device(const void* from, int64_t bytes);
  // Waits for that copy.
  void wait();

 private:
  void copied(Function function, void* to, const void* from, int64_t bytes);

  const Driver* driver_;
  Pool* pool_;  // NULL: the buffer is of this call alone
  void* stream_;
  Pinned pinned_;
};

// A call's way to buffers. The stream's context is current.
class Staging {
 public:
  explicit Staging(const opdock::Call& call);
  // May wait for the device.
  Buffer take();
  // None where that would wait.
  std::optional<Buffer> take_at_once();

 private:
  Buffer hold(Pinned pinned) { return Buffer(driver_, pool_, stream_, pinned); }

  const Driver& driver_;
  // Of the device; NULL on a stream whose context is not the device's primary one: memory and
  // events go when their context does, so such a call makes its own, and waits for the stream at
  // its end.
  Pool* pool_;
  void* stream_;
};

}  // namespace convert_copy
