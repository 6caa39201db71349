// Runs a program of the build: its output bounded, nothing of it left behind.
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
  std::string folder;                    // where it runs; empty: here
  std::chrono::steady_clock::time_point deadline;
  Progress* progress = nullptr;  // asked whether to stop; may be NULL
  // Gets stdout and stderr, mixed as they come, in pieces. May be empty.
  std::function<void(std::string_view)> on_output;
};

struct ProcessEnd {
  enum Kind {
    kExit,        // number: the exit status
    kSignal,      // number: the signal
    kTimeout,     // the deadline passed; killed
    kCancelled,   // progress said so; killed
    kNotStarted,  // number: errno
  };
  Kind kind = kNotStarted;
  int number = 0;
  bool ok() const { return kind == kExit && number == 0; }
  std::string text()
      const;  // "ended with status 1", "was killed by signal 11 (Segmentation fault)"
};

// Runs the program under opdock-guard in a process group of its own, so that it and everything it
// starts ends with it, with this call, and with this process, however that ends. Cancelling and
// timing out kill all of it at once. Blocking; any thread.
ProcessEnd run_process(const std::string& guard, const ProcessJob& job);

// The first `limit` bytes of what a program prints, for asking compilers for their version.
ProcessEnd run_and_read(const std::string& guard, ProcessJob job, size_t limit,
                        std::string* output);

}  // namespace opdock
