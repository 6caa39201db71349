// Copies the files of a source plugin.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "base/files.h"
#include "build/limits.h"
#include "build/sources.h"
#include "trust/trust.h"

namespace opdock {
namespace {

Reason unreadable(const std::string& path, const char* why) {
  return make_reason(Code::kBuildSource, path + ": " + why, "a file that can be read");
}

Reason uncopied(const std::string& target, int error) {
  return cannot_write(target, error, Code::kBuildSource, "a copy of the plugin's source");
}

// Copies an open file. path: the name of `from`, for messages.
bool copy_open_file(int from, const std::string& path, const std::string& target,
                    Progress* progress, std::vector<Reason>* reasons) {
  Fd to(open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  int error = to ? 0 : errno;
  std::vector<char> buffer(1 << 20);
  while (error == 0) {
    if (progress != nullptr && progress->cancelled()) {
      reasons->push_back(make_reason(Code::kCancelled));
      return false;
    }
    const ssize_t count = read(from, buffer.data(), buffer.size());
    if (count == 0) break;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      reasons->push_back(unreadable(path, std::strerror(errno)));
      return false;
    }
    error = write_all(to.get(), {buffer.data(), static_cast<size_t>(count)});
  }
  if (to && close(to.release()) != 0 && error == 0) error = errno;
  if (error == 0) return true;
  reasons->push_back(uncopied(target, error));
  return false;
}

}  // namespace

bool copy_sources(const std::string& folder, const std::vector<SourceFile>& files,
                  const std::string& target, Trust* trust, Progress* progress,
                  std::vector<Reason>* reasons) {
  for (const SourceFile& file : files) {
    const std::string path = folder + "/" + file.name, copy = target + "/" + file.name;
    const std::string copys_folder = parent_of(copy);
    if (const int error = make_folders(copys_folder)) {
      reasons->push_back(uncopied(copys_folder, error));
      return false;
    }
    if (file.name.ends_with('/')) continue;  // a folder, which only needs to exist
    // O_NONBLOCK: a FIFO among the files must not block the open.
    const Fd from(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status{};
    if (!from || fstat(from.get(), &status) != 0) {
      reasons->push_back(unreadable(path, std::strerror(errno)));
      return false;
    }
    if (!S_ISREG(status.st_mode)) {
      reasons->push_back(unreadable(path, "no regular file"));
      return false;
    }
    if (trust != nullptr) {
      if (const std::optional<Reason> reason = trust->check(path, from.get(), status)) {
        reasons->push_back(make_reason(Code::kBuildUntrusted, reason->found, reason->wanted));
        return false;
      }
    }
    if (!copy_open_file(from.get(), path, copy, progress, reasons)) return false;
  }
  return true;
}

}  // namespace opdock
