// Pinned host memory through which copies between the host and a GPU go. The driver copies to and
// from it asynchronously, while the host and the stream go on.
//
// Each device has a pool of buffers that calls share, on any thread. A buffer that a stream has yet
// to read or write is not reused before its event has completed. When kPooled buffers are waiting
// for streams, a call waits for the oldest; while there are fewer, or other calls hold them, one
// more is allocated. Buffers are kept until the process ends and are then freed, except those that
// would have to be waited for. A forked child, where the driver is unusable, leaves them untouched.
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
  bool is_pending = false;  // the event has been recorded and has not been seen to complete
};

// A buffer that a call holds; its destructor returns it to the pool. Movable.
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
  // Enqueue a copy of `bytes` bytes on the call's stream.
  void to_device(void* to, int64_t bytes);
  void from_device(const void* from, int64_t bytes);
  // Waits for the copy that was enqueued last.
  void wait();

 private:
  void copied(Function function, void* to, const void* from, int64_t bytes);

  const Driver* driver_;
  Pool* pool_;  // NULL: the buffer belongs to this call only
  void* stream_;
  Pinned pinned_;
};

// Hands buffers to a call. The stream's context must be current.
class Staging {
 public:
  explicit Staging(const opdock::Call& call);
  // Returns a buffer. May wait for the device.
  Buffer take();
  // Returns a buffer, or none where that would have to wait.
  std::optional<Buffer> try_take();

 private:
  Buffer hold(Pinned pinned) { return Buffer(driver_, pool_, stream_, pinned); }

  const Driver& driver_;
  // The device's pool. NULL on a stream whose context is not the device's primary one: memory and
  // events are destroyed with their context, so such a call makes its own and waits for the stream
  // at its end.
  Pool* pool_;
  void* stream_;
};

}  // namespace convert_copy
