// Decides which folder the cache is in, and whether it may be used.
// SPDX-License-Identifier: Apache-2.0
#include <sys/auxv.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>

#include "base/sha256.h"
#include "cache/store.h"
#include "fmt/format.h"
#include "trust/trust.h"

namespace opdock {
namespace {

Reason none_when_privileged() {
  return make_reason(Code::kCacheUnusable, "a program with raised privileges, which has none",
                     "a user's program");
}

// Returns why the folder cannot be used, or nullopt. For a folder that does not exist yet, the
// folders above it count.
std::optional<Reason> check_folder(const std::string& folder) {
  const SearchEnvironment environment = read_search_environment();
  if (environment.secure) return none_when_privileged();
  if (folder.front() != '/') {
    return make_reason(Code::kCacheUnusable, folder + ", which is no absolute path",
                       "an absolute path");
  }
  struct stat status{};
  if (stat(folder.c_str(), &status) != 0) {
    if (errno != ENOENT) {
      return make_reason(Code::kCacheUnusable, folder + ": " + error_text(errno), "a folder");
    }
    struct stat link{};
    if (lstat(folder.c_str(), &link) == 0) {
      if (!S_ISLNK(link.st_mode)) return check_folder(folder);  // another process has just made it
      return make_reason(Code::kCacheUnusable, folder + ", a link that leads nowhere", "a folder");
    }
  } else if (!S_ISDIR(status.st_mode)) {
    return make_reason(Code::kCacheUnusable, folder + ", which is no folder", "a folder");
  } else if (status.st_uid != geteuid() && status.st_uid != 0) {
    return make_reason(Code::kCacheUnusable,
                       fmt::format("{} owned by user {}", folder, status.st_uid),
                       fmt::format("a folder of user {}", geteuid()));
  } else if ((status.st_mode & S_IWOTH) != 0) {
    return make_reason(
        Code::kCacheUnusable,
        fmt::format("{} with mode {:04o}: everybody can write it", folder, status.st_mode & 07777),
        "a folder that only its owner can write (chmod go-w)");
  }
  const std::optional<Reason> untrusted = Trust(environment).check_path(folder).reason;
  if (!untrusted) return std::nullopt;
  return make_reason(Code::kCacheUnusable, untrusted->found,
                     untrusted->wanted + ", above the cache");
}

// Returns the folder for memos, or "" to keep them in the cache itself, as is done wherever the
// cache can be written.
std::string memo_root(const std::string& folder, const std::string& memo_folder) {
  if (memo_folder.empty() || memo_folder == folder) return {};
  if (can_write(folder) || errno == ENOENT || check_folder(memo_folder)) return {};
  return memo_folder;
}

std::string text_of_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

// Returns the user's own cache folder: in XDG_CACHE_HOME, or in the home folder. A home folder that
// does not exist is not created: a user without one is not meant to write there. On failure returns
// "" and adds a reason.
std::string folder_of_user(const SearchEnvironment& environment, std::vector<Reason>* reasons) {
  if (environment.cache_home.empty()) {
    cache::add_reason(reasons, Code::kCacheUnusable,
                      "neither OPDOCK_CACHE_DIR nor XDG_CACHE_HOME nor HOME is set", "one of them");
    return {};
  }
  const std::string home = text_of_variable("HOME");
  if (environment.cache_home == home + "/.cache" && access(home.c_str(), F_OK) != 0) {
    cache::add_reason(reasons, Code::kCacheUnusable, "HOME=" + home + ": " + error_text(errno),
                      "a home folder");
    return {};
  }
  return environment.cache_home + "/opdock";
}

}  // namespace

std::string CacheRequest::key() const {
  FieldHasher hasher;
  hasher.add(kind);
  for (const CacheField& field : fields) hasher.add(field.name).add(field.value);
  return to_hex(hasher.finish());
}

CacheOptions cache_options_from_environment(std::vector<Reason>* reasons) {
  CacheOptions options;
  const SearchEnvironment environment = read_search_environment();
  if (environment.secure) {
    if (reasons != nullptr) reasons->push_back(none_when_privileged());
    return options;
  }
  const std::string folder = text_of_variable("OPDOCK_CACHE_DIR"),
                    size = text_of_variable("OPDOCK_CACHE_MAX_BYTES");
  if (!size.empty()) {
    uint64_t bytes = 0;
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), bytes);
    if (error == std::errc() && end == size.data() + size.size()) {
      options.max_bytes = bytes;
    } else {
      cache::add_reason(reasons, Code::kCacheSetting, "OPDOCK_CACHE_MAX_BYTES=" + size,
                        "a number of bytes");
    }
  }
  if (!folder.empty() && folder.front() != '/') {
    cache::add_reason(reasons, Code::kCacheSetting, "OPDOCK_CACHE_DIR=" + folder,
                      "an absolute path");
  } else if (!folder.empty()) {
    options.folder = folder;
    options.memo_folder = folder_of_user(environment, nullptr);
  } else {
    options.folder = folder_of_user(environment, reasons);
  }
  return options;
}

std::unique_ptr<Cache> Cache::open(const CacheOptions& options, std::vector<Reason>* reasons) {
  std::string folder = options.folder;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  if (folder.empty()) {
    return std::make_unique<cache::Store>(
        "", options.max_bytes, make_reason(Code::kCacheUnusable, "no folder for it", "a cache"));
  }
  std::optional<Reason> reason = check_folder(folder);
  if (!reason) {
    return std::make_unique<cache::Store>(folder, options.max_bytes, Reason(),
                                          memo_root(folder, options.memo_folder));
  }
  if (reasons != nullptr) reasons->push_back(*reason);
  return std::make_unique<cache::Store>("", options.max_bytes, *reason);
}

}  // namespace opdock
