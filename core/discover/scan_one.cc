// What one file is by its numbers, and why it cannot be opened.
// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/utf8.h"
#include "discover/scan.h"
#include "fmt/format.h"

namespace opdock {

FileStamp stamp_of(const struct stat& status) {
  const auto nanoseconds = [](const timespec& time) {
    return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
  };
  return {status.st_dev, status.st_ino, static_cast<uint64_t>(status.st_size),
          nanoseconds(status.st_mtim), nanoseconds(status.st_ctim)};
}

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
      return make_reason(Code::kNotRegular, text, "a regular file, or a symbolic link to one");
    default:
      return make_reason(Code::kPathUnreadable, text, "a file that this user can read");
  }
}

}  // namespace opdock
