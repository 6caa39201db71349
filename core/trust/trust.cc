// SPDX-License-Identifier: Apache-2.0
#include "trust/trust.h"

#include <grp.h>
#include <pwd.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <deque>

#include "base/installed.h"
#include "fmt/format.h"

namespace opdock {
namespace {

constexpr int kMaxLinks = 40;  // as many as the kernel follows

struct Account {
  std::string name;  // empty if the user number has no name
  gid_t group = static_cast<gid_t>(-1);
};

Account account(uid_t user) {
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return {};
  }
  return {entry.pw_name, entry.pw_gid};
}

std::string describe(uid_t user) {
  const std::string name = account(user).name;
  return name.empty() ? fmt::format("user {}", user) : fmt::format("user {} ({})", name, user);
}

// Returns whether the group has the user's name, is the user's primary one and has no other member.
bool is_private_group(gid_t group, uid_t user) {
  const Account owner = account(user);
  if (owner.name.empty() || owner.group != group) return false;
  std::array<char, 16384> buffer{};
  struct group entry{};
  struct group* found = nullptr;
  if (getgrgid_r(group, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return false;
  }
  if (owner.name != entry.gr_name) return false;
  for (char** member = entry.gr_mem; *member != nullptr; ++member) {
    if (owner.name != *member) return false;
  }
  return true;
}

// If there is an access list, the mode's group bits are its mask: other users may be named in it.
bool has_access_list(int fd, const std::string& path) {
  constexpr const char* kList = "system.posix_acl_access";
  const ssize_t size =
      fd >= 0 ? fgetxattr(fd, kList, nullptr, 0) : getxattr(path.c_str(), kList, nullptr, 0);
  return size > 0;
}

void push_components(const std::string& path, std::deque<std::string>* pending) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= path.size()) {
    size_t end = path.find('/', begin);
    if (end == std::string::npos) end = path.size();
    if (end > begin) parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  pending->insert(pending->begin(), parts.begin(), parts.end());
}

uid_t library_owner() {
  struct stat status{};
  const std::string folder = own_folder();
  return !folder.empty() && stat(folder.c_str(), &status) == 0 ? status.st_uid : 0;
}

}  // namespace

Trust::Trust(const SearchEnvironment& environment) : owners_{0, library_owner()} {
  if (!environment.secure) owners_.push_back(geteuid());
  read_consents(environment);
}

bool Trust::is_owner(uid_t user) const {
  return std::find(owners_.begin(), owners_.end(), user) != owners_.end();
}

std::optional<Reason> Trust::check_owner_and_mode(const struct stat& status,
                                                  const std::string& path, int fd) const {
  if (!is_owner(status.st_uid)) {
    return make_reason(Code::kUntrustedOwner,
                       fmt::format("{} owned by {}", path, describe(status.st_uid)),
                       fmt::format("an owner that is root or {}", describe(owners_.back())));
  }
  const mode_t mode = status.st_mode & 07777;
  if ((mode & S_IWOTH) != 0) {
    Reason reason =
        make_reason(Code::kUntrustedWritable,
                    fmt::format("{} with mode {:04o}: everybody can write it", path, mode),
                    "no write permission for others");
    if ((mode & S_ISVTX) != 0) {  // a shared folder such as /tmp must keep its mode
      reason.advice =
          "move the plugin, or the virtual environment that it is in, to a folder that only you "
          "can write, such as one in your home; or run `opdock trust FOLDER` on the plugin's own "
          "folder";
    }
    return reason;
  }
  if ((mode & S_IWGRP) == 0) return std::nullopt;
  const bool is_private = std::any_of(owners_.begin(), owners_.end(), [&](uid_t owner) {
    return is_private_group(status.st_gid, owner);
  });
  if (is_private && !has_access_list(fd, path)) return std::nullopt;
  return make_reason(
      Code::kUntrustedWritable,
      fmt::format("{} with mode {:04o}: group {} can write it", path, mode, status.st_gid),
      "no write permission for a group that has other members");
}

Trust::Folder Trust::check_folder(const std::string& path) {
  {
    const std::lock_guard lock(mutex_);
    const auto known = folders_.find(path);
    if (known != folders_.end()) return known->second;
  }
  struct stat status{};
  Folder folder;
  // A folder that cannot be examined cannot be passed through either; opening the file reports it.
  if (stat(path.c_str(), &status) == 0) {
    folder.reason = check_owner_and_mode(status, path, -1);
    folder.is_sticky = is_owner(status.st_uid) && (status.st_mode & S_ISVTX) != 0;
  }
  const std::lock_guard lock(mutex_);
  folders_.emplace(path, folder);
  return folder;
}

// Returns why the entry `path` of `folder` could be another user's. In a sticky folder, only its
// owner and the entry's owner can rename or remove an entry.
std::optional<Reason> Trust::check_entry(const std::string& folder, const std::string& path,
                                         const struct stat& status) {
  const Folder around = check_folder(folder);
  if (!around.reason || !around.is_sticky) return around.reason;
  if (is_owner(status.st_uid)) return std::nullopt;
  return make_reason(Code::kUntrustedOwner,
                     fmt::format("{} owned by {}, in a folder that others can write", path,
                                 describe(status.st_uid)),
                     fmt::format("an owner that is root or {}", describe(owners_.back())));
}

// Returns whether the user vouched for the folder, or for one that contains it.
bool Trust::covers(const std::string& real) const {
  return std::any_of(consents_.begin(), consents_.end(), [&](const std::string& consent) {
    return real == consent || real.starts_with(consent + "/") || consent == "/";
  });
}

// Judges an entry of `level`. own: what speaks against the entry itself.
TrustedPath Trust::check_end(const Level& level, std::optional<Reason> own) const {
  if (covers(level.path)) return {std::nullopt, true};
  return {level.reason ? level.reason : std::move(own), false};
}

TrustedPath Trust::check_path(const std::string& path) {
  std::vector<Level> levels = {{"/", std::nullopt}};
  std::deque<std::string> pending;
  push_components(path, &pending);
  for (int links = 0; !pending.empty();) {
    const std::string name = pending.front();
    pending.pop_front();
    if (name == ".") continue;
    if (name == "..") {
      if (TrustedPath end = check_end(levels.back(), std::nullopt); end.reason) return end;
      if (levels.size() > 1) levels.pop_back();
      continue;
    }
    const Level& here = levels.back();
    const std::string next = (here.path == "/" ? "" : here.path) + "/" + name;
    struct stat status{};
    if (lstat(next.c_str(), &status) != 0) {
      const bool is_absent = errno == ENOENT;
      Folder folder = check_folder(here.path);
      if (folder.reason && folder.is_sticky && is_absent) {
        folder.reason->found = fmt::format("{}, which is not there: others can create it", next);
        folder.reason->wanted = "a folder that is there";
        folder.reason->advice = "make it your own first (mkdir -m 700)";
      }
      return check_end(here, std::move(folder.reason));
    }
    std::optional<Reason> own = check_entry(here.path, next, status);
    if (S_ISDIR(status.st_mode)) {
      levels.push_back({next, here.reason ? here.reason : std::move(own)});
      continue;
    }
    TrustedPath end = check_end(here, std::move(own));
    if (end.reason || !S_ISLNK(status.st_mode)) return end;
    std::array<char, 4097> target{};
    const ssize_t size = readlink(next.c_str(), target.data(), target.size() - 1);
    if (size <= 0 || ++links > kMaxLinks) return {};
    if (target[0] == '/') levels.resize(1);
    push_components(target.data(), &pending);
  }
  return check_end(levels.back(), check_folder(levels.back().path).reason);
}

std::optional<Reason> Trust::check_file(int fd, const struct stat& status,
                                        const std::string& path) {
  return check_owner_and_mode(status, path, fd);
}

std::optional<Reason> Trust::check(const std::string& path, int fd, const struct stat& status) {
  TrustedPath trusted = check_path(path);
  if (trusted.reason || trusted.has_consent) return std::move(trusted.reason);
  return check_file(fd, status, path);
}

}  // namespace opdock
