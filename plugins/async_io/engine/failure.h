// Describes why a request has failed. This is plain data: threads that must not allocate record it,
// and the thread that waits converts it to text.
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
    kKind,       // it is not a regular file
    kEndOfFile,  // found: the file's size
    kReading,
    kWriting,
    kResizing,
    kClosing,  // some file systems report at close what could not be written
  };
  Of of = Of::kNothing;
  int error = 0;        // errno of a failed system call
  uint64_t offset = 0;  // in the file; offset and bytes tell what was not transferred
  uint64_t bytes = 0;
  uint64_t found = 0;

  explicit operator bool() const { return of != Of::kNothing; }
};

// Returns a message with the path, the offset, errno's text, and what to do next.
std::string to_text(const Failure& failure, const Request& request);

// Returns, for example, "No space left on device (errno 28)".
std::string error_text(int error);

}  // namespace async_io
