// One thread's queue in the kernel, for direct I/O only: I/O through the page cache is mostly a
// copy in memory, for which a queue costs more than it saves.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "job.h"

namespace async_io {

// A block of a job that is in flight. A thread's pieces are in an array of queue_depth slots.
struct Piece {
  Job* job = nullptr;
  uint64_t position = 0;  // relative to the request's beginning
  uint64_t bytes = 0;

  char* memory() const { return static_cast<char*>(job->request.memory) + position; }
  uint64_t offset() const { return job->request.offset + position; }
};

// The result of a piece.
struct Completion {
  uint32_t slot;
  int64_t result;  // bytes transferred, or -errno
};

// Used by one thread, but made and destroyed by others. Allocates only in its constructor.
class Ring {
 public:
  virtual ~Ring() = default;

  // Submits the pieces in these slots, with one system call if the kernel allows. Returns how many
  // it has accepted, counted from the first; the others are not in flight. At most queue_depth
  // pieces are in flight.
  virtual uint32_t submit(const uint32_t* slots, uint32_t count, const Piece* pieces) = 0;

  // Fills in pieces that have ended, at most `room`, and returns their number. `wait`: waits for at
  // least one of those in flight.
  virtual uint32_t reap(Completion* ended, uint32_t room, bool wait) = 0;

  // Called in a forked child before the destructor, because the kernel's queue belongs to the
  // parent.
  virtual void leave_to_parent() = 0;
};

// Return nullptr, and why, if the kernel refuses.
std::unique_ptr<Ring> make_uring(uint32_t depth, std::string* why_not);
std::unique_ptr<Ring> make_aio(uint32_t depth, std::string* why_not);

// A ring for each thread, or none for plain system calls. Throws Error if options.backend names a
// backend that the kernel refuses.
struct Rings {
  Backend backend = Backend::kThreads;
  std::vector<std::unique_ptr<Ring>> rings;
  std::string report;
};
Rings make_rings(const Options& options);

}  // namespace async_io
