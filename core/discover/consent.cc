// The list of folders that the user vouched for: $XDG_CONFIG_HOME/opdock/trusted.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "discover/trust.h"
#include "fmt/format.h"

namespace opdock {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

constexpr size_t kMaxBytes = 1 << 20;

bool read_all(int fd, std::string* text) {
  char buffer[4096];
  for (;;) {
    const ssize_t size = read(fd, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 || text->size() > kMaxBytes) return false;
    if (size == 0) return true;
    text->append(buffer, static_cast<size_t>(size));
  }
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = write(fd, text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return false;
    text.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

std::string system_error(const char* what, const std::string& path) {
  return fmt::format("cannot {} {}: {}", what, path, std::strerror(errno));
}

// mkdir -p with 0700, as the XDG specification wants it.
bool make_folders(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    if (mkdir(path.substr(0, slash).c_str(), 0700) != 0 && errno != EEXIST) return false;
    if (slash == std::string::npos) return true;
  }
}

}  // namespace

std::string consent_file(const SearchEnvironment& environment) {
  return environment.config_home.empty() ? std::string()
                                         : environment.config_home + "/opdock/trusted";
}

std::vector<std::string> read_consents(const SearchEnvironment& environment,
                                       std::vector<Reason>* notices) {
  const std::string path = consent_file(environment);
  if (path.empty()) return {};
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
  struct stat status{};
  std::string text;
  if (file.get() < 0) {
    if (errno != ENOENT && errno != ENOTDIR) {
      notices->push_back(make_reason(Code::kPathUnreadable, system_error("open", path),
                                     "the list of trusted folders"));
    }
    return {};
  }
  if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || !read_all(file.get(), &text)) {
    notices->push_back(
        make_reason(Code::kPathUnreadable, path + ", which cannot be read", "a regular file"));
    return {};
  }
  // Whoever can write this file can have any code loaded.
  if (status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    notices->push_back({Code::kUntrustedWritable,
                        fmt::format("{} with mode {:04o} and owner {}", path,
                                    status.st_mode & 07777, status.st_uid),
                        "a file that only this user can write",
                        fmt::format("run `chmod 600 {}`; until then no consent counts", path)});
    return {};
  }
  std::vector<std::string> folders;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (text[begin] == '/') folders.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return folders;
}

std::string record_consent(const std::string& folder, const SearchEnvironment& environment,
                           bool* is_argument) {
  *is_argument = false;
  if (environment.secure) {
    return "a program with raised privileges records no consent; run `opdock trust` as the user";
  }
  const std::string path = consent_file(environment);
  if (path.empty()) return "there is no home folder to record it in; set HOME or XDG_CONFIG_HOME";
  *is_argument = true;
  if (folder.empty() || folder.front() != '/') {
    return fmt::format("found \"{}\", wanted an absolute path", folder);
  }
  char* resolved = realpath(folder.c_str(), nullptr);
  if (resolved == nullptr) return system_error("find", folder) + "; correct the path";
  const std::string real(resolved);
  std::free(resolved);
  struct stat status{};
  if (stat(real.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return fmt::format("found {}, which is not a folder; name the folder that holds the plugins",
                       folder);
  }
  if (real.find('\n') != std::string::npos) {
    return "found a folder with a line break in its name; rename it";
  }
  *is_argument = false;

  const std::string home = path.substr(0, path.rfind('/'));
  if (!make_folders(home)) return system_error("create", home);
  // The lock serialises two writers; the rename lets readers see the old list or the new one.
  const std::string lock_path = path + ".lock";
  const Descriptor lock(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (lock.get() < 0 || flock(lock.get(), LOCK_EX) != 0) return system_error("lock", lock_path);
  std::vector<Reason> notices;
  std::vector<std::string> folders = read_consents(environment, &notices);
  if (!notices.empty()) return to_text(notices.front());
  if (std::find(folders.begin(), folders.end(), real) != folders.end()) return {};
  folders.push_back(real);

  std::string pattern = path + ".XXXXXX";
  const Descriptor file(mkostemp(pattern.data(), O_CLOEXEC));
  if (file.get() < 0) return system_error("create", pattern);
  std::string text;
  for (const std::string& each : folders) text += each + "\n";
  if (!write_all(file.get(), text) || fsync(file.get()) != 0 ||
      rename(pattern.c_str(), path.c_str()) != 0) {
    const std::string problem = system_error("write", path);
    unlink(pattern.c_str());
    return problem;
  }
  return {};
}

}  // namespace opdock
