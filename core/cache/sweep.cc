// SPDX-License-Identifier: Apache-2.0
#include "cache/sweep.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/files.h"
#include "cache/locks.h"

namespace opdock::cache {
namespace {

// How long records stay, each from when it was last written, and how many bad entries are kept.
constexpr int64_t kFailuresStay = 30 * kDay, kHistoryStays = 180 * kDay, kMemosStay = 30 * kDay;
constexpr int64_t kBadStay = 7 * kDay;
constexpr size_t kKeptBad = 16;

// Returns whether the maker of a temporary file, judged by the file's name, is gone: true only if
// the file was made on this host.
bool is_maker_gone(const std::string& name) {
  const std::string host = host_name();
  if (!name.starts_with(host + ".")) return false;
  const long pid = std::strtol(name.c_str() + host.size() + 1, nullptr, 10);
  return pid > 0 && kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
}

// Returns whether no live process works on the temporary file or folder `name`.
bool is_abandoned(const std::string& folder, const std::string& name, int64_t now) {
  const std::string path = folder + "/" + name, lock = path + ".lock";
  // A new file may have been created but not locked yet.
  if (!is_older(std::max(modified(path), modified(lock)), kMinute, now)) return false;
  Fd file;
  int error = open_file(lock, O_RDWR, 0, &file);
  if (error == ENOENT) error = open_file(path, O_RDWR, 0, &file);
  if (error == EISDIR) return true;  // a folder without a lock file, which is always removed last
  if (error == 0) error = try_flock(file.get(), LOCK_EX);
  if (error == 0) return true;
  if (error == EWOULDBLOCK) return false;
  return is_maker_gone(name) || is_older(modified(path), kDay, now);
}

size_t sweep_temp(const Layout& layout, int64_t now) {
  std::vector<std::string> names;
  list_folder(layout.temp(), &names);
  std::set<std::string> items;
  for (const std::string& name : names) {
    items.insert(name.ends_with(".lock") ? name.substr(0, name.size() - 5) : name);
  }
  size_t swept = 0;
  for (const std::string& item : items) {
    if (!is_abandoned(layout.temp(), item, now)) continue;
    remove_tree(layout.temp() + "/" + item);
    unlink((layout.temp() + "/" + item + ".lock").c_str());
    ++swept;
  }
  return swept;
}

size_t sweep_locks(const Layout& layout, int64_t now) {
  std::vector<std::string> names;
  list_folder(layout.locks(), &names);
  size_t swept = 0;
  for (const std::string& name : names) {
    const std::string path = layout.locks() + "/" + name;
    if (name == "gc" || !is_older(modified(path), kDay, now)) continue;
    LockFile lock;
    // A process that has the file open already notices, once it has locked it, that its path is
    // gone.
    if (lock.open(path) != 0 || lock.try_lock() != 0) continue;
    lock.unlink();
    ++swept;
  }
  return swept;
}

size_t sweep_bad(const Layout& layout, int64_t now) {
  std::vector<std::string> names;
  list_folder(layout.bad(), &names);
  std::map<std::string, int64_t> items;
  for (const std::string& name : names) {
    const std::string item = name.ends_with(".why") ? name.substr(0, name.size() - 4) : name;
    items[item] = std::max(items[item], modified(layout.bad() + "/" + name));
  }
  std::vector<std::pair<int64_t, std::string>> newest_first;
  for (const auto& [item, time] : items) newest_first.emplace_back(-time, item);
  std::sort(newest_first.begin(), newest_first.end());
  size_t swept = 0;
  for (size_t i = 0; i < newest_first.size(); ++i) {
    if (i < kKeptBad && !is_older(-newest_first[i].first, kBadStay, now)) continue;
    remove_tree(layout.bad() + "/" + newest_first[i].second);
    unlink((layout.bad() + "/" + newest_first[i].second + ".why").c_str());
    ++swept;
  }
  return swept;
}

// Removes files two levels down, such as failures/ab/KEY/…, that are older than `seconds`.
size_t sweep_records(const std::string& folder, int64_t seconds, int64_t now) {
  size_t swept = 0;
  std::vector<std::string> shards, keys, names;
  list_folder(folder, &shards);
  for (const std::string& shard : shards) {
    list_folder(folder + "/" + shard, &keys);
    for (const std::string& key : keys) {
      const std::string path = folder + "/" + shard + "/" + key;
      list_folder(path, &names);
      for (const std::string& name : names) {
        if (!is_older(modified(path + "/" + name), seconds, now)) continue;
        swept += unlink((path + "/" + name).c_str()) == 0;
      }
      rmdir(path.c_str());
    }
    rmdir((folder + "/" + shard).c_str());
  }
  return swept;
}

}  // namespace

int64_t modified(const std::string& path) {
  struct stat status{};
  return lstat(path.c_str(), &status) == 0 ? status.st_mtim.tv_sec : 0;
}

bool is_older(int64_t time, int64_t seconds, int64_t now) {
  return time > now + kMinute || now - time > seconds;
}

size_t sweep(const Layout& layout, int64_t now) {
  return sweep_temp(layout, now) + sweep_locks(layout, now) + sweep_bad(layout, now) +
         sweep_records(layout.base() + "/failures", kFailuresStay, now) +
         sweep_records(layout.base() + "/history", kHistoryStays, now) +
         sweep_records(layout.base() + "/memos", kMemosStay, now);
}

}  // namespace opdock::cache
