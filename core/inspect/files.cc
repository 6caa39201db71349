// SPDX-License-Identifier: Apache-2.0
#include "inspect/files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "discover/scan.h"

namespace opdock {
namespace {

FileIdentity identity_of(const struct stat& status) {
  const FileStamp stamp = stamp_of(status);
  return {stamp.device, stamp.inode, stamp.mtime_ns, 0};
}

}  // namespace

std::optional<OpenFile> Files::open(const std::string& path, std::vector<Reason>* reasons) const {
  struct stat status{};
  // Asked before it is opened: opening a device can have effects, and a FIFO would be waited for.
  int error = stat(path.c_str(), &status) == 0 ? 0 : errno;
  if (error == 0 && !S_ISREG(status.st_mode)) error = ENXIO;
  Fd fd;
  if (error == 0) {
    fd = Fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (!fd || fstat(fd.get(), &status) != 0) error = errno;
  }
  if (error == 0 && !S_ISREG(status.st_mode)) error = ENXIO;
  if (error != 0) {
    if (reasons != nullptr) reasons->push_back(open_reason(error, path));
    return std::nullopt;
  }
  return OpenFile{std::move(fd), static_cast<uint64_t>(status.st_size), identity_of(status)};
}

std::optional<FileIdentity> Files::identify(const std::string& path) const {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return identity_of(status);
}

std::string plain_path(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path whole = std::filesystem::absolute(path, failed);
  std::string text = (failed ? std::filesystem::path(path) : whole).lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

}  // namespace opdock
