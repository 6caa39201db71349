// SPDX-License-Identifier: Apache-2.0
#include "base/child.h"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace opdock {
namespace {

// Defined here because the C library's headers may be older than the running kernel.
constexpr unsigned kProcessGroup = 1u << 2;            // PIDFD_SIGNAL_PROCESS_GROUP
constexpr idtype_t kPidfd = static_cast<idtype_t>(3);  // P_PIDFD
constexpr long kSendSignal = 424, kOpenPidfd = 434;    // the same on every architecture

}  // namespace

Child::Child(pid_t pid) : pid_(pid), fd_(static_cast<int>(syscall(kOpenPidfd, pid, 0))) {
  siginfo_t info;
  if (fd_ < 0 || wait(WNOHANG | WNOWAIT, &info) || errno != EINVAL) return;
  close(std::exchange(fd_, -1));  // the kernel opens pidfds but cannot wait for them
}

Child::~Child() {
  forget();
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), fd_(std::exchange(other.fd_, -1)) {}

Child& Child::operator=(Child&& other) noexcept {
  if (this == &other) return *this;
  forget();
  pid_ = std::exchange(other.pid_, -1);
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

void Child::forget() {
  if (fd_ >= 0) close(fd_);
  pid_ = fd_ = -1;
}

bool Child::wait(int options, siginfo_t* info) const {
  *info = {};
  const idtype_t kind = fd_ >= 0 ? kPidfd : P_PID;
  const id_t id = static_cast<id_t>(fd_ >= 0 ? fd_ : pid_);
  while (pid_ > 0) {
    if (waitid(kind, id, info, WEXITED | options) == 0) return true;
    if (errno != EINTR) break;
  }
  return false;
}

void Child::signal(int number) {
  siginfo_t info;
  if (fd_ >= 0) {
    syscall(kSendSignal, fd_, number, nullptr, 0u);
  } else if (wait(WNOHANG | WNOWAIT, &info)) {
    kill(pid_, number);
  }
}

void Child::signal_group(int number) {
  siginfo_t info;
  const bool sent = fd_ >= 0 && syscall(kSendSignal, fd_, number, nullptr, kProcessGroup) == 0;
  // A child that is not reaped yet keeps its process ID from being reused.
  if (!sent && wait(WNOHANG | WNOWAIT, &info)) kill(-pid_, number);
}

void Child::await_end() {
  siginfo_t info;
  wait(WNOWAIT, &info);
}

bool Child::try_reap(std::optional<ChildEnd>* end) {
  siginfo_t info;
  end->reset();
  if (wait(WNOHANG, &info)) {
    if (info.si_pid == 0) return false;
    *end = ChildEnd{info.si_code != CLD_EXITED, info.si_status};
  }
  forget();
  return true;
}

std::optional<ChildEnd> Child::reap() {
  std::optional<ChildEnd> end;
  do {
    await_end();
  } while (!try_reap(&end));
  return end;
}

}  // namespace opdock
