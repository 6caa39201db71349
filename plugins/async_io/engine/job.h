// A request that an engine has taken.
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
  bool is_run = false;  // by Engine::run, which waits for it itself

  // Set by the thread that opens the file, before others see the job open.
  int fd = -1;                // until then the duplicate of request.fd, if there is one
  bool is_own_file = false;   // opened here: its flags are ours to change
  uint64_t blocks_begin = 0;  // what is split into blocks, from the request's beginning on; for
  uint64_t blocks_end = 0;    // direct I/O the whole pages, else all of it

  // Whether the file is open for direct I/O. Once false it stays so.
  std::atomic<bool> is_direct{false};

  // Guarded by the engine's mutex.
  bool is_open = false;
  bool has_ended = false;
  uint64_t next = 0;       // up to where blocks have been given to threads
  uint32_t in_flight = 0;  // of which so many have not ended
  Failure failure;
  uint32_t waiters = 0;   // threads in a wait for it; the last to leave forgets the job
  Job* behind = nullptr;  // in the queue
};

}  // namespace async_io
