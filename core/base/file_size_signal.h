// A guard that keeps a write beyond the file size limit (ulimit -f) from ending the process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <ctime>

namespace opdock {

// While a guard lives, a write of this thread beyond RLIMIT_FSIZE only fails with EFBIG, whatever
// the program does on SIGXFSZ, which ends the process by default.
class NoFileSizeSignal {
 public:
  NoFileSizeSignal() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~NoFileSizeSignal() {
    // The kernel sends SIGXFSZ to the thread that writes. A signal that was pending before is not
    // consumed: it belongs to the program.
    const timespec at_once{};
    while (!was_pending_ && sigtimedwait(&signal_, nullptr, &at_once) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoFileSizeSignal(const NoFileSizeSignal&) = delete;
  NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;

 private:
  bool was_pending_ = false;
  sigset_t signal_, before_;
};

}  // namespace opdock
