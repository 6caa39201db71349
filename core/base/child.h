// A child process, held so that no signal meant for it reaches another.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>

namespace opdock {

// How a child ended.
struct ChildEnd {
  bool by_signal = false;
  int number = 0;  // the signal, or the exit status
};

// A process number is used again once somebody has reaped its process, and a host program may reap
// all children: by a thread of its own, or by ignoring SIGCHLD. So a child is signalled and waited
// for by its pidfd; where the kernel has none (before 5.4), by its number, and signalled only while
// this process can still wait for it. One thread; not for a forked child of this process.
class Child {
 public:
  Child() = default;
  // pid: a child that was started just now.
  explicit Child(pid_t pid);
  ~Child();
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;

  // False once it was reaped.
  explicit operator bool() const { return pid_ > 0; }

  // Nothing happens if it has ended.
  void signal(int number);
  // For all of the process group that has its number, also when the child itself has ended. Where
  // somebody else has reaped it, kernels before 6.9 cannot tell whose group that is: then nothing
  // happens.
  void signal_group(int number);
  // Returns when it has ended, without reaping it.
  void await_end();
  // Reaps it if it has ended. False: it runs. *end: none if somebody else has reaped it.
  bool try_reap(std::optional<ChildEnd>* end);
  // The same, waiting for its end.
  std::optional<ChildEnd> reap();

 private:
  // waitid() for it. False: it is no child of this process any more.
  bool wait(int options, siginfo_t* info) const;
  void forget();

  pid_t pid_ = -1;
  int fd_ = -1;
};

}  // namespace opdock
