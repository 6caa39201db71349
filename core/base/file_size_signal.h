// Writing beyond the limit of file sizes (ulimit -f) without the end of the process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <ctime>

namespace opdock {

// While this lives, a write of this thread beyond RLIMIT_FSIZE fails with EFBIG and nothing else
// happens, whatever the program has made of SIGXFSZ: by default that ends it.
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
    // The kernel sends it to the thread that writes; one that came before is not ours to take.
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
