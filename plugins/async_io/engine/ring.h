// One thread's queue in the kernel, for direct I/O. What goes through the page cache is a copy in
// memory most of the time, for which a queue costs more than it saves.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "job.h"

namespace async_io {

// A block of a job on its way. A thread's pieces lie in an array of queue_depth slots.
struct Piece {
  Job* job = nullptr;
  uint64_t position = 0;  // from the request's beginning on
  uint64_t bytes = 0;

  char* memory() const { return static_cast<char*>(job->request.memory) + position; }
  uint64_t offset() const { return job->request.offset + position; }
};

// How a piece has ended.
struct Ended {
  uint32_t slot;
  int64_t result;  // bytes transferred, or -errno
};

// Used by one thread; made and destroyed by others. Allocates nothing but when it is made.
class Ring {
 public:
  virtual ~Ring() = default;

  // Hands over the pieces in these slots, with one system call if the kernel agrees. Returns how
  // many it has taken, from the first on; the others are not under way. At most queue_depth pieces
  // are in flight.
  virtual uint32_t submit(const uint32_t* slots, uint32_t count, const Piece* pieces) = 0;

  // Fills in pieces that have ended, at most `room`, and returns their number; `wait`: at least
  // one, of those in flight.
  virtual uint32_t reap(Ended* ended, uint32_t room, bool wait) = 0;

  // In a forked child, before the destructor: the kernel's queue is the parent's.
  virtual void leave_to_parent() = 0;
};

// nullptr, and why not, where the kernel refuses.
std::unique_ptr<Ring> make_uring(uint32_t depth, std::string* why_not);
std::unique_ptr<Ring> make_aio(uint32_t depth, std::string* why_not);

// A ring for each thread, or none for plain system calls. Throws Error if options.backend names one
// that the kernel refuses.
struct Rings {
  Backend backend = Backend::kThreads;
  std::vector<std::unique_ptr<Ring>> rings;
  std::string report;
};
Rings make_rings(const Options& options);

}  // namespace async_io
