// SPDX-License-Identifier: Apache-2.0
#include "link/files.h"

#include <fcntl.h>
#include <sys/stat.h>

namespace opdock {
namespace {

std::optional<FileIdentity> identity_of(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return std::nullopt;
  return FileIdentity{status.st_dev, status.st_ino, 0, static_cast<uint64_t>(status.st_size),
                      int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

}  // namespace

std::optional<FileIdentity> Files::identify(const std::string& path) const {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return identity_of(status);
}

std::optional<OpenFile> Files::open(const std::string& path) const {
  // Looked at first: opening a device can have effects, and a path may come from anybody's file.
  if (!identify(path)) return std::nullopt;
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status{};
  if (!fd || ::fstat(fd.get(), &status) != 0) return std::nullopt;
  const std::optional<FileIdentity> identity = identity_of(status);
  if (!identity) return std::nullopt;
  return OpenFile{std::move(fd), *identity};
}

bool Files::is_folder(const std::string& path) const {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace opdock
