// Locks that the kernel holds: they end with the process that took them, however it ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/files.h"
#include "base/fork_aware_lock.h"

namespace opdock::cache {

// Uses flock(2) rather than fcntl's locks: a flock belongs to the open file, so the threads of one
// process exclude each other too, and closing another descriptor of the file does not release it.
// On NFS Linux maps it to a byte-range lock of the server. A descriptor that a forked child
// inherits would keep the lock alive after its parent's death, so every exclusive lock is closed in
// the child.
class LockFile {
 public:
  LockFile() = default;
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  // Opens or creates the file. Returns 0 or errno.
  int open(const std::string& path);
  // Tries to take the lock exclusively, without waiting. Returns 0; EWOULDBLOCK; ESTALE if the path
  // now names another file (open again); or another errno if the file system has no locks.
  int try_lock();
  // Returns whether the lock is held by this thread, or by one that waits for this thread.
  bool would_wait_for_itself() const;
  // Writes into the file who holds the lock and for what. A failure does no harm: only a message
  // lacks it.
  void write_holder(const std::string& what);
  void unlink();  // only while holding the lock
  static void close_in_child();

 private:
  std::string path_;
  int fd_ = -1;
  bool locked_ = false;
  ForkAwareLock holder_;  // the thread of this process that holds the lock
};

// The holder of a lock, as its file says.
struct Holder {
  long pid = 0;
  std::string host;
  int64_t since = 0;  // seconds since the epoch, by the holder's clock
  std::string what;
};
std::optional<Holder> read_holder(const std::string& path);
// Returns "pid 12 on host a, which makes axpy for sm_90a", and, if that can be seen, that the
// process is stopped.
std::string to_text(const Holder& holder);

// Calls flock with LOCK_SH or LOCK_EX on any open file, without waiting. Returns 0, EWOULDBLOCK or
// another errno.
int try_flock(int fd, int operation);
// Returns whether the error is one of a file system that has no locks.
bool means_no_locks(int error);

}  // namespace opdock::cache
