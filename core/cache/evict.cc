// SPDX-License-Identifier: Apache-2.0
#include "cache/evict.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>

#include "base/files.h"
#include "cache/entry_format.h"
#include "cache/locks.h"
#include "cache/sweep.h"
#include "fmt/format.h"

namespace opdock::cache {
namespace {

constexpr int64_t kGrace = 10 * kMinute;

// Returns the file system's own time, taken from a file that is made for this purpose: the clocks
// of the machines that share the file system need not agree.
int64_t file_system_time(const Layout& layout) {
  const std::string path = layout.temp() + "/" + unique_name();
  Fd file;
  struct stat status{};
  int64_t now = now_seconds();
  if (open_file(path, O_WRONLY | O_CREAT | O_EXCL, 0600, &file) == 0) {
    if (fstat(file.get(), &status) == 0) now = status.st_mtim.tv_sec;
    unlink(path.c_str());
  }
  return now;
}

std::string entry_file(const Variant& variant) {
  struct stat status{};
  const bool is_folder = lstat(variant.path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  return is_folder ? variant.path + "/entry" : variant.path;
}

struct Usage {
  uint64_t bytes = 0;
  int64_t walked = 0;  // when they were last counted
};

bool read_usage(const Layout& layout, Usage* usage) {
  Fd file;
  std::vector<uint8_t> bytes;
  if (open_file(layout.usage(), O_RDONLY, 0, &file) != 0) return false;
  if (read_all(file.get(), 100, &bytes) != 0) return false;
  const std::string text(bytes.begin(), bytes.end());
  unsigned long long total = 0;
  long long walked = 0;
  if (std::sscanf(text.c_str(), "%llu %lld", &total, &walked) != 2) return false;
  *usage = {total, walked};
  return true;
}

// Writes the estimate. Two processes may overwrite each other's, which does no harm.
void write_usage(const Layout& layout, const Usage& usage) {
  Fd file;
  if (open_file(layout.usage(), O_WRONLY | O_CREAT, 0600, &file) != 0) return;
  write_all(file.get(), fmt::format("{:20} {:20}\n", usage.bytes, usage.walked));
}

}  // namespace

std::vector<Variant> list_variants(const Layout& layout) {
  std::vector<Variant> variants;
  std::vector<std::string> shards, keys, makers;
  for (const char* kind : kKinds) {
    const std::string base = layout.base() + "/" + kind;
    list_folder(base, &shards);
    for (const std::string& shard : shards) {
      list_folder(base + "/" + shard, &keys);
      for (const std::string& key : keys) {
        if (!is_key(key) || key.substr(0, 2) != shard) continue;
        const std::string folder = base + "/" + shard + "/" + key;
        list_folder(folder, &makers);
        for (const std::string& maker : makers) {
          if (!is_hex(maker, 8, 64)) continue;
          Variant variant{kind, key, maker, folder + "/" + maker, 0, 0};
          variant.bytes = tree_bytes(variant.path);
          variant.used = modified(entry_file(variant));
          variants.push_back(variant);
        }
      }
    }
  }
  return variants;
}

bool is_newer_format(const std::string& entry_file) {
  Fd file;
  if (open_file(entry_file, O_RDONLY, 0, &file) != 0) return false;
  // Reads only the head and pads it to an entry's minimum size: decode_entry() checks the digest
  // only after the format.
  std::vector<uint8_t> head(kEntryHeadBytes + 32);
  if (pread(file.get(), head.data(), kEntryHeadBytes, 0) != kEntryHeadBytes) return false;
  EntryData data;
  std::string problem;
  return decode_entry(head, &data, &problem) == EntryState::kNewer;
}

bool remove_unused(const Layout& layout, const Variant& variant, int64_t now) {
  const std::string entry = entry_file(variant);
  Fd file;
  int error = open_file(entry, O_RDWR, 0, &file);
  if (error == EACCES) error = open_file(entry, O_RDONLY, 0, &file);
  if (error == 0) {
    error = try_flock(file.get(), LOCK_EX);
    if (error == EWOULDBLOCK) return false;
    if (error != 0 && !is_older(variant.used, kDay, now)) return false;
  }
  if (entry == variant.path) {
    if (unlink(entry.c_str()) != 0) return false;
  } else {
    // Renaming first makes the whole folder vanish at once; what a crash leaves of it is swept
    // later.
    const std::string dead = layout.temp() + "/" + unique_name();
    if (make_folders(layout.temp()) != 0 || rename(variant.path.c_str(), dead.c_str()) != 0) {
      return false;
    }
    remove_tree(dead);
  }
  const std::string key = parent_of(variant.path);
  rmdir(key.c_str());  // fails if it has other variants
  rmdir(parent_of(key).c_str());
  return true;
}

Evicted evict(const Layout& layout, uint64_t max_bytes) {
  Evicted result;
  struct stat status{};
  if (stat(layout.base().c_str(), &status) != 0) return result;  // nothing was ever kept
  if (make_folders(layout.locks()) != 0 || make_folders(layout.temp()) != 0) return result;
  LockFile lock;
  if (lock.open(layout.locks() + "/gc") == 0 && lock.try_lock() == EWOULDBLOCK) {
    result.busy = true;
    return result;
  }
  const int64_t now = file_system_time(layout);
  result.swept = sweep(layout, now);
  std::vector<Variant> variants = list_variants(layout);
  std::sort(variants.begin(), variants.end(),
            [](const Variant& a, const Variant& b) { return a.used < b.used; });
  for (const Variant& variant : variants) result.kept_bytes += variant.bytes;
  for (const Variant& variant : variants) {
    if (variant.used > now + kHour) {  // set by a clock that was ahead: from now on it ages
      const timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
      utimensat(AT_FDCWD, entry_file(variant).c_str(), times, AT_SYMLINK_NOFOLLOW);
      continue;
    }
    if (result.kept_bytes <= max_bytes || now - variant.used < kGrace) continue;
    if (is_newer_format(entry_file(variant))) continue;
    if (!remove_unused(layout, variant, now)) {
      ++result.in_use;
      continue;
    }
    ++result.removed;
    result.removed_bytes += variant.bytes;
    result.kept_bytes -= variant.bytes;
  }
  write_usage(layout, {result.kept_bytes, now_seconds()});
  return result;
}

void evict_if_due(const Layout& layout, uint64_t max_bytes, uint64_t published) {
  Usage usage;
  const int64_t now = now_seconds();
  const bool is_known = read_usage(layout, &usage);
  const int64_t age = now >= usage.walked ? now - usage.walked : usage.walked - now;
  usage.bytes += published;
  // Evicts at most every 10 s: what could not be removed a moment ago can hardly be removed now.
  const bool is_over = usage.bytes > max_bytes && age >= 10;
  if (!is_known || is_over || age > 6 * kHour) {
    evict(layout, max_bytes);
  } else {
    write_usage(layout, usage);
  }
}

}  // namespace opdock::cache
