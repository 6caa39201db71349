// Locks that the kernel holds: they end with the process that took them, however it ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/files.h"
#include "base/turn.h"

namespace opdock::cache {

// flock(2) rather than fcntl's locks: it belongs to the open file, so the threads of one process
// exclude each other too and closing another descriptor of the file does not release it; Linux maps
// it to a byte-range lock of the server on NFS. What a forked child inherits would keep the lock
// alive after its parent's death: every exclusive lock is closed in the child.
class LockFile {
 public:
  LockFile() = default;
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  // Opens or makes the file. errno.
  int open(const std::string& path);
  // Tries to take it exclusively, without waiting. 0, EWOULDBLOCK, ESTALE where the path has come
  // to name another file (open again), or another errno: the file system has no locks.
  int try_lock();
  // Whether it is held by this thread, or by one that waits for this thread.
  bool would_wait_for_itself() const;
  // Says in the file who holds it and for what. Failing is no harm: only a message lacks it.
  void write_holder(const std::string& what);
  void unlink();  // while holding it
  static void close_in_child();

 private:
  std::string path_;
  int fd_ = -1;
  bool locked_ = false;
  Turn holder_;  // of this process
};

// Who holds a lock, as the file says.
struct Holder {
  long pid = 0;
  std::string host;
  int64_t since = 0;  // seconds since the epoch, by the holder's clock
  std::string what;
};
std::optional<Holder> read_holder(const std::string& path);
// "pid 12 on host a, which makes axpy for sm_90a", and "(stopped)" where that can be seen.
std::string to_text(const Holder& holder);

// flock with LOCK_SH or LOCK_EX on any open file, not waiting. 0, EWOULDBLOCK or another errno.
int try_flock(int fd, int operation);
// True for the errors of a file system that has no locks.
bool means_no_locks(int error);

}  // namespace opdock::cache
