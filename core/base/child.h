// A handle to a child process that never signals or waits for the wrong process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>

namespace opdock {

// How a child ended.
struct ChildEnd {
  bool by_signal = false;
  int number = 0;  // the signal number or the exit status
};

// Once a child has been reaped, the kernel may reuse its process ID, and a host program may reap
// all children, in a thread of its own or by ignoring SIGCHLD. So this class signals and waits
// through a pidfd. On kernels without pidfds (before 5.4) it uses the process ID, and signals only
// while this process can still wait for the child. Use it from one thread, and not in a forked
// child of this process.
class Child {
 public:
  Child() = default;
  // pid: a child that was started just now.
  explicit Child(pid_t pid);
  ~Child();
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;

  // False once the child was reaped.
  explicit operator bool() const { return pid_ > 0; }

  // Sends a signal; does nothing if the child has ended.
  void signal(int number);
  // Signals the whole process group whose ID is the child's, even when the child itself has ended.
  // If somebody else has reaped the child, kernels before 6.9 cannot tell whether the group is
  // still the same one, so nothing is sent.
  void signal_group(int number);
  // Waits until the child has ended, without reaping it.
  void await_end();
  // Reaps the child if it has ended; returns false if it still runs. *end is empty if somebody else
  // has reaped it.
  bool try_reap(std::optional<ChildEnd>* end);
  // Waits until the child has ended and reaps it; empty if somebody else has reaped it.
  std::optional<ChildEnd> reap();

 private:
  // Calls waitid() for the child. Returns false if it is no longer a child of this process.
  bool wait(int options, siginfo_t* info) const;
  void forget();

  pid_t pid_ = -1;
  int fd_ = -1;
};

}  // namespace opdock
