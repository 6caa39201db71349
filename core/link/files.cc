// SPDX-License-Identifier: Apache-2.0
#include "link/files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>

#include "base/utf8.h"
#include "fmt/format.h"

namespace opdock {
namespace {

constexpr const char* kWantedFile = "a regular file, or a symbolic link to one";

FileIdentity identity_of(const struct stat& status) {
  return {status.st_dev, status.st_ino,
          int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec, 0,
          static_cast<uint64_t>(status.st_size)};
}

}  // namespace

Reason open_reason(int error, const std::string& path) {
  const std::string text = fmt::format("{} ({})", escape_bytes(path), std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return make_reason(Code::kPathMissing, text, "a file or folder");
    case ELOOP:
      return make_reason(Code::kLinkBroken, text, "a link that leads to a file");
    case ENAMETOOLONG:
      return make_reason(
          Code::kNameInvalid,
          fmt::format("a path of {} bytes ({})", path.size(), std::strerror(error)),
          fmt::format("names of at most {} bytes in a path of at most {}", NAME_MAX, PATH_MAX - 1));
    case ENXIO:
      return make_reason(Code::kNotRegular, text, kWantedFile);
    default:
      return make_reason(Code::kPathUnreadable, text, "a file that this user can read");
  }
}

std::optional<OpenFile> Files::open(const std::string& path, std::vector<Reason>* reasons) const {
  struct stat status{};
  // stat() comes first, because opening a device can have effects, and opening a FIFO could block.
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

bool Files::is_folder(const std::string& path) const {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string Files::other_kind(const std::string& path) const {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) return "";
  switch (status.st_mode & S_IFMT) {
    case S_IFREG:
      return "";
    case S_IFDIR:
      return "a folder";
    case S_IFIFO:
      return "a FIFO, at which the loader would wait for ever";
    case S_IFSOCK:
      return "a socket";
    default:
      return "a device";
  }
}

std::string plain_path(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path whole = std::filesystem::absolute(path, failed);
  std::string text = (failed ? std::filesystem::path(path) : whole).lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

}  // namespace opdock
