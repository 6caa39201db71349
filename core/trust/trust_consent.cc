// The list of folders that the user vouched for: $XDG_CONFIG_HOME/opdock/trusted.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "base/files.h"
#include "fmt/format.h"
#include "trust/trust.h"

namespace opdock {
namespace {

constexpr size_t kMaxBytes = 1 << 20;

std::string system_error(const char* what, const std::string& path, int error = errno) {
  return fmt::format("cannot {} {}: {}", what, path, error_text(error));
}

Status failed(std::string text) {
  return {OPDOCK_INTERNAL, std::move(text)};
}

Status refused(std::string text) {
  return {OPDOCK_INVALID_ARGUMENT, std::move(text)};
}

// Finds the list's path, or says why this user has none.
Status find_list(const SearchEnvironment& environment, std::string* path) {
  if (environment.secure) {
    return failed(
        "a program with raised privileges records no consent; run `opdock trust` as the user");
  }
  *path = consent_file(environment);
  if (!path->empty()) return {};
  return failed("there is no home folder to record it in; set HOME or XDG_CONFIG_HOME");
}

// Replaces the list at `path` by what `change` makes of it. `change` returns false if it changes
// nothing.
Status rewrite(const std::string& path, const SearchEnvironment& environment,
               const std::function<bool(std::vector<std::string>*)>& change) {
  const std::string home = path.substr(0, path.rfind('/'));
  // 0700, as the XDG specification wants it.
  if (const int error = make_folders(home)) return failed(system_error("create", home, error));
  // The lock serialises two writers; the rename lets readers see the old list or the new one.
  const std::string lock_path = path + ".lock";
  const Fd lock(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (lock.get() < 0 || flock(lock.get(), LOCK_EX) != 0)
    return failed(system_error("lock", lock_path));
  Trust trust(environment);
  if (!trust.notices().empty()) return failed(to_text(trust.notices().front()));
  if (const std::optional<Reason> reason = trust.check_path(home).reason)
    return failed(to_text(*reason));
  std::vector<std::string> folders = trust.consents();
  if (!change(&folders)) return {};
  std::string pattern = path + ".XXXXXX";
  const Fd file(mkostemp(pattern.data(), O_CLOEXEC));
  if (file.get() < 0) return failed(system_error("create", pattern));
  std::string text;
  for (const std::string& each : folders) text += each + "\n";
  int error = write_all(file.get(), text);
  if (error == 0) error = sync_file(file.get());
  if (error == 0 && rename(pattern.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return {};
  unlink(pattern.c_str());
  return failed(system_error("write", path, error));
}

}  // namespace

std::string consent_file(const SearchEnvironment& environment) {
  return environment.config_home.empty() ? std::string()
                                         : environment.config_home + "/opdock/trusted";
}

void Trust::read_consents(const SearchEnvironment& environment) {
  const std::string path = consent_file(environment);
  if (path.empty()) return;
  const Fd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
  struct stat status{};
  std::vector<uint8_t> text;
  if (file.get() < 0) {
    if (errno != ENOENT && errno != ENOTDIR) {
      notices_.push_back(make_reason(Code::kPathUnreadable, system_error("open", path),
                                     "the list of trusted folders"));
    }
    return;
  }
  if (fstat(file.get(), &status) != 0 || read_all(file.get(), kMaxBytes, &text) != 0) {
    notices_.push_back(
        make_reason(Code::kPathUnreadable, path + ", which cannot be read", "a regular file"));
    return;
  }
  // A user who can write or replace this file can have any code loaded.
  if (status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    notices_.push_back({Code::kUntrustedWritable,
                        fmt::format("{} with mode {:04o} and owner {}", path,
                                    status.st_mode & 07777, status.st_uid),
                        "a file that only this user can write",
                        fmt::format("run `chmod 600 {}`; until then no consent counts", path)});
    return;
  }
  if (std::optional<Reason> reason = check_path(path).reason) {
    reason->advice = "run `chmod go-w` on what others can write; until then no consent counts";
    notices_.push_back(std::move(*reason));
    return;
  }
  for (auto begin = text.begin(); begin < text.end();) {
    const auto end = std::find(begin, text.end(), '\n');
    if (begin != end && *begin == '/') consents_.emplace_back(begin, end);
    begin = end == text.end() ? end : end + 1;
  }
}

Status record_consent(const std::string& folder, const SearchEnvironment& environment, bool force) {
  std::string path;
  if (Status none = find_list(environment, &path); !none.ok()) return none;
  if (folder.empty() || folder.front() != '/') {
    return refused(fmt::format("found \"{}\", wanted an absolute path", folder));
  }
  const std::string real = real_path(folder);
  if (real.empty()) return refused(system_error("find", folder) + "; correct the path");
  struct stat status{};
  if (stat(real.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return refused(fmt::format(
        "found {}, which is not a folder; name the folder that holds the plugins", folder));
  }
  if (real.find('\n') != std::string::npos) {
    return refused("found a folder with a line break in its name; rename it");
  }
  const bool is_open = (status.st_mode & S_IWOTH) != 0;
  if (!force && (real == "/" || is_open)) {
    return refused(fmt::format(
        "found {}, {}, wanted a folder that only those you trust may write; name the plugins' own "
        "folder, or add --force to run code of {}",
        real, is_open ? "which everybody may write" : "which holds every folder of this machine",
        is_open ? "everybody's" : "everybody's, from /tmp too"));
  }
  return rewrite(path, environment, [&](std::vector<std::string>* folders) {
    if (std::find(folders->begin(), folders->end(), real) != folders->end()) return false;
    folders->push_back(real);
    return true;
  });
}

Status withdraw_consent(const std::string& folder, const SearchEnvironment& environment) {
  std::string path;
  if (Status none = find_list(environment, &path); !none.ok()) return none;
  // A folder that is gone, or a link that leads elsewhere now, is found by its listed name.
  const std::string real = real_path(folder);
  std::string listed = folder;
  if (real.empty()) listed = std::filesystem::path(folder).lexically_normal().string();
  while (listed.size() > 1 && listed.back() == '/') listed.pop_back();
  size_t count = 0;
  Status done = rewrite(path, environment, [&](std::vector<std::string>* folders) {
    count = std::erase_if(*folders, [&](const std::string& one) {
      return one == listed || (!real.empty() && one == real);
    });
    return count != 0;
  });
  if (!done.ok() || count != 0) return done;
  return refused(fmt::format(
      "{} is not in the list of trusted folders; `opdock trust --list` shows it", folder));
}

}  // namespace opdock
