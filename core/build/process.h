// Runs a program of the build such that none of its processes is left behind, with its output
// bounded on request.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"

namespace opdock {

struct ProcessJob {
  std::vector<std::string> arguments;    // [0]: the program's absolute path
  std::vector<std::string> environment;  // "NAME=value": all of it, nothing is inherited
  std::string folder;                    // the working directory; empty: this process's
  std::chrono::steady_clock::time_point deadline;
  Progress* progress = nullptr;  // asked whether to stop; may be NULL
  // Receives stdout and stderr in pieces, mixed in the order of their arrival. May be empty.
  std::function<void(std::string_view)> on_output;
};

struct ProcessEnd {
  enum Kind {
    kExit,        // number: the exit status
    kSignal,      // number: the signal
    kTimeout,     // the deadline passed; killed
    kCancelled,   // progress->cancelled() returned true; killed
    kNotStarted,  // number: errno
  };
  Kind kind = kNotStarted;
  int number = 0;
  bool ok() const { return kind == kExit && number == 0; }
  // Returns "ended with status 1" or "was killed by signal 11 (Segmentation fault)".
  std::string text() const;
};

// Runs the program under opdock-guard in a process group of its own, so that the program and
// everything that it starts end with the program, with this call, and with this process, however
// that ends. Cancelling and timing out kill all of it at once. Blocking; any thread.
ProcessEnd run_process(const std::string& guard, const ProcessJob& job);

// Runs a program and appends the first `limit` bytes that it prints to *output, for asking
// compilers for their version.
ProcessEnd run_and_read(const std::string& guard, ProcessJob job, size_t limit,
                        std::string* output);

}  // namespace opdock
