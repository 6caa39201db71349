// A request that an engine has accepted.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "engine.h"
#include "failure.h"

namespace async_io {

struct Job {
  ~Job() {
    if (fd >= 0) close(fd);
  }

  // Set by submit().
  Request request;
  uint64_t ticket = 0;
  bool is_run = false;  // submitted by Engine::run, which waits for it itself

  // Set by the thread that opens the file, before other threads see the job as open.
  int fd = -1;               // before that, the duplicate of request.fd, if there is one
  bool is_own_file = false;  // the engine has opened the file and may change its flags
  // The range that is split into blocks, relative to the request's beginning: for direct I/O the
  // whole pages, else everything.
  uint64_t blocks_begin = 0;
  uint64_t blocks_end = 0;

  // Whether the file is open for direct I/O. Once false, it stays false.
  std::atomic<bool> is_direct{false};

  // Guarded by the engine's mutex.
  bool is_open = false;
  bool has_ended = false;
  uint64_t next = 0;       // blocks before this position have been given to threads
  uint32_t in_flight = 0;  // number of these blocks that have not ended
  Failure failure;
  uint32_t waiters = 0;          // threads that wait for the job; the last one removes it
  Job* next_in_queue = nullptr;  // next job in the queue
};

}  // namespace async_io
