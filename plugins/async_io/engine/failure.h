// What has gone wrong with a request. Plain data: noted by threads that allocate nothing, and made
// into text by whoever waits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "engine.h"

namespace async_io {

struct Failure {
  enum class Of {
    kNothing,
    kOpening,
    kKind,       // it is no regular file
    kEndOfFile,  // found: the file's size
    kReading,
    kWriting,
    kResizing,
    kClosing,  // where some file systems report what could not be written
  };
  Of of = Of::kNothing;
  int error = 0;        // errno, where a system call has failed
  uint64_t offset = 0;  // in the file; with bytes: what was not transferred
  uint64_t bytes = 0;
  uint64_t found = 0;

  explicit operator bool() const { return of != Of::kNothing; }
};

// With the path, the offset, errno's text, and what to do next.
std::string to_text(const Failure& failure, const Request& request);

// "No space left on device (errno 28)".
std::string error_text(int error);

}  // namespace async_io
