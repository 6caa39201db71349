// Waits while another thread, process or machine makes the same entry.
// SPDX-License-Identifier: Apache-2.0
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "cache/store.h"
#include "fmt/format.h"

namespace opdock::cache {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPoll = std::chrono::milliseconds(4);
constexpr auto kSilence = std::chrono::seconds(2);  // waiting time before the first report
constexpr auto kRepeat = std::chrono::seconds(1);   // between reports: the holder may change

class HeldLock final : public CacheLock {
 public:
  // file: NULL if there is no lock to hold.
  HeldLock(std::unique_ptr<LockFile> file, bool is_turn)
      : file_(std::move(file)), is_turn_(is_turn) {}
  bool is_turn() const override { return is_turn_; }

 private:
  std::unique_ptr<LockFile> file_;
  const bool is_turn_;
};

// Identifies the file or folder at a path, if there is any.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  int64_t seconds = 0, nanoseconds = 0;  // time of its last change: inode numbers are reused
  bool operator==(const Identity&) const = default;
};

Identity identify(const std::string& path) {
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino, status.st_ctim.tv_sec, status.st_ctim.tv_nsec};
}

}  // namespace

std::unique_ptr<CacheLock> Store::lock(const CacheRequest& request, const CacheMaker& maker,
                                       Progress* progress, std::vector<Reason>* reasons) {
  if (!is_usable(reasons)) return nullptr;
  const std::string key = request.key(), path = layout_.lock(key, maker);
  if (const int error = prepare(layout_.locks())) {
    add_reason(reasons, Code::kCacheWrite, layout_.locks() + ": " + error_text(error),
               "a folder that can be written");
    return nullptr;
  }
  // The lock goes from one waiter to the next, so the last of sixty would wait for all before it.
  // They wait for the result, so each looks in every round whether the result or a remembered
  // failure is there.
  const std::string result = layout_.variant(request.kind, key, maker);
  const std::string failure = layout_.failure(key, maker);
  const Identity old_result = identify(result), old_failure = identify(failure);
  const auto begin = Clock::now();
  auto next_word = begin + kSilence;
  auto file = std::make_unique<LockFile>();
  int error = file->open(path);
  while (error == 0) {
    error = file->try_lock();
    if (error == ESTALE) {
      error = file->open(path);
      continue;
    }
    if (error != 0 && error != EWOULDBLOCK) break;
    // Checked even after acquiring the lock: the result may have appeared meanwhile.
    const Identity new_result = identify(result), new_failure = identify(failure);
    if ((new_result.inode != 0 && new_result != old_result) ||
        (new_failure.inode != 0 && new_failure != old_failure)) {
      return std::make_unique<HeldLock>(nullptr, false);
    }
    if (error == 0) {
      file->write_holder(request.subject);
      return std::make_unique<HeldLock>(std::move(file), true);
    }
    if (file->would_wait_for_itself()) {
      if (reasons != nullptr) reasons->push_back(deadlock_reason(request.subject + " to be made"));
      return nullptr;
    }
    if (progress != nullptr && progress->cancelled()) {
      add_reason(reasons, Code::kCancelled, "a request to stop while waiting for another process",
                 "");
      return nullptr;
    }
    if (progress != nullptr && Clock::now() >= next_word) {
      const std::optional<Holder> holder = read_holder(path);
      progress->step("waiting for " + (holder ? to_text(*holder) : "another process"), -1);
      next_word = Clock::now() + kRepeat;
    }
    std::this_thread::sleep_for(kPoll);
    error = 0;
  }
  if (error == ENOSPC || error == EDQUOT || error == EROFS || error == EACCES || error == EMFILE ||
      error == ENFILE) {
    add_reason(reasons, Code::kCacheWrite, path + ": " + error_text(error),
               "a file that can be written");
    return nullptr;
  }
  // Without locks, makers may race: they publish the same thing, and the loser drops its own.
  add_reason(reasons, Code::kCacheLock, path + ": " + error_text(error), "a lock");
  return std::make_unique<HeldLock>(nullptr, true);
}

}  // namespace opdock::cache
