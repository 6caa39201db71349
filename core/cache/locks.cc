// SPDX-License-Identifier: Apache-2.0
#include "cache/locks.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <set>
#include <utility>

#include "base/file_size_signal.h"
#include "base/mutex.h"
#include "fmt/format.h"

namespace opdock::cache {
namespace {

// The locks whose descriptors a forked child must close. Files are opened with the mutex held, so
// that no fork comes between opening a file and listing it here.
struct Registry {
  Mutex mutex;
  std::set<LockFile*> open;
};
Registry& registry = *new Registry;  // never destroyed: fork may come at any time

std::string state_of(long pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const size_t bracket = line.rfind(") ");
  return bracket == std::string::npos ? std::string() : line.substr(bracket + 2, 1);
}

}  // namespace

void LockFile::close_in_child() {
  for (LockFile* one : registry.open) {
    // Only closes: unlocking would release the parent's lock.
    close(one->fd_);
    one->fd_ = -1;
    one->locked_ = false;
  }
  registry.open.clear();
}

[[maybe_unused]] static const int registered =
    pthread_atfork(nullptr, nullptr, LockFile::close_in_child);

LockFile::~LockFile() {
  const std::lock_guard guard(registry.mutex);
  registry.open.erase(this);
  if (fd_ < 0) return;
  // Unlocks explicitly, because a child that was made by other means than fork() may hold a copy of
  // the descriptor for a moment.
  if (locked_) flock(fd_, LOCK_UN);
  close(fd_);
}

int LockFile::open(const std::string& path) {
  const std::lock_guard guard(registry.mutex);
  registry.open.erase(this);
  if (fd_ >= 0) close(std::exchange(fd_, -1));
  Fd fd;
  if (const int error = open_file(path, O_RDWR | O_CREAT, 0600, &fd)) return error;
  path_ = path;
  fd_ = fd.release();
  registry.open.insert(this);
  return 0;
}

int LockFile::try_lock() {
  if (fd_ < 0) return EBADF;
  if (const int error = try_flock(fd_, LOCK_EX)) return error;
  locked_ = true;
  holder_.lock();
  struct stat mine{}, there{};
  if (fstat(fd_, &mine) != 0 || stat(path_.c_str(), &there) != 0 || mine.st_ino != there.st_ino ||
      mine.st_dev != there.st_dev) {
    flock(fd_, LOCK_UN);
    locked_ = false;
    holder_.unlock();
    return ESTALE;  // an eviction removed the file between opening and locking
  }
  return 0;
}

bool LockFile::would_wait_for_itself() const {
  const std::lock_guard guard(registry.mutex);
  return std::any_of(registry.open.begin(), registry.open.end(), [&](const LockFile* one) {
    return one->path_ == path_ && one->holder_.would_deadlock();
  });
}

void LockFile::write_holder(const std::string& what) {
  const std::string text =
      fmt::format("{} {} {} {}\n", getpid(), host_name(), now_seconds(), what.substr(0, 1000));
  const NoFileSizeSignal no_signal;
  if (ftruncate(fd_, 0) != 0) return;
  const ssize_t written = pwrite(fd_, text.data(), text.size(), 0);
  static_cast<void>(written);
}

void LockFile::unlink() {
  if (locked_) ::unlink(path_.c_str());
}

std::optional<Holder> read_holder(const std::string& path) {
  Fd fd;
  std::vector<uint8_t> bytes;
  if (open_file(path, O_RDONLY, 0, &fd) != 0 || read_all(fd.get(), 4096, &bytes) != 0) return {};
  std::string text(bytes.begin(), bytes.end());
  for (char& c : text) {
    if (static_cast<uint8_t>(c) < 0x20) c = ' ';
  }
  Holder holder;
  std::array<char, 257> host{};
  int end = 0;
  long long since = 0;
  if (std::sscanf(text.c_str(), "%ld %256s %lld %n", &holder.pid, host.data(), &since, &end) != 3) {
    return {};
  }
  holder.host = host.data();
  holder.since = since;
  holder.what = text.substr(static_cast<size_t>(end));
  while (!holder.what.empty() && holder.what.back() == ' ') holder.what.pop_back();
  return holder;
}

std::string to_text(const Holder& holder) {
  std::string text = fmt::format("pid {} on host {}", holder.pid, holder.host);
  if (!holder.what.empty()) text += fmt::format(", which makes {}", holder.what);
  if (holder.host != host_name()) return text;
  if (state_of(holder.pid) == "T") text += " (it is stopped: kill -CONT lets it go on)";
  return text;
}

int try_flock(int fd, int operation) {
  while (flock(fd, operation | LOCK_NB) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

bool means_no_locks(int error) {
  return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL ||
         error == EBADF;
}

}  // namespace opdock::cache
