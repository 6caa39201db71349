// Compiles in a separate process: a compiler that aborts, hangs or floods its output costs a
// reason, never this process. hipRTC runs only so, because it aborts for architectures that it does
// not know.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "base/child.h"
#include "base/mutex.h"
#include "base/progress.h"
#include "base/reason.h"
#include "base/status.h"
#include "jit/worker_protocol.h"

namespace opdock {

// One opdock-compile process. Not thread-safe; different workers may be used by different threads.
class CompileWorker {
 public:
  // program: the path of opdock-compile; empty: the installed one.
  explicit CompileWorker(const std::string& program);
  CompileWorker(const CompileWorker&) = delete;
  CompileWorker& operator=(const CompileWorker&) = delete;
  ~CompileWorker();  // ends the process

  // Starts the process if there is none, and compiles. Returns false and a reason (jit-worker) if
  // the process could not be started, died, did not answer within `deadline` or answered nonsense;
  // it is killed then, and the next call starts another. It is also killed when `progress` (may be
  // NULL) says to stop; the result's fault is kCancelled then.
  bool compile(const worker::Request& request, std::chrono::milliseconds deadline,
               Progress* progress, CompileResult* result, std::vector<Reason>* reasons);

 private:
  Status start();
  void end();
  void read_words();
  // Returns the last lines that the worker wrote to stderr, for messages.
  std::string last_words() const;

  std::string program_;
  Child child_;
  const uint32_t forks_ = forks();
  int socket_ = -1;  // the worker's stdin and stdout
  int errors_ = -1;  // the worker's stderr
  std::string words_;
};

// Returns the path of opdock-compile; empty if it is not installed.
std::string compile_worker_path();

}  // namespace opdock
