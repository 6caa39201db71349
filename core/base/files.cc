// SPDX-License-Identifier: Apache-2.0
#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file_size_signal.h"
#include "base/sha256.h"
#include "fmt/format.h"

namespace opdock {

std::string error_text(int error) {
  return std::generic_category().message(error);
}

int open_file(const std::string& path, int flags, mode_t mode, Fd* out) {
  int fd = -1;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return errno;
  *out = Fd(fd);
  return 0;
}

int write_all(int fd, std::string_view bytes) {
  const NoFileSizeSignal no_signal;
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return EIO;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

int write_whole(const std::string& path, std::string_view bytes) {
  Fd fd;
  if (const int error = open_file(path, O_WRONLY | O_CREAT | O_TRUNC, 0600, &fd)) return error;
  if (const int error = write_all(fd.get(), bytes)) return error;
  return close(fd.release()) == 0 ? 0 : errno;
}

int read_all(int fd, uint64_t most, std::vector<uint8_t>* out) {
  struct stat status{};
  if (fstat(fd, &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) return EISDIR;
  if (static_cast<uint64_t>(status.st_size) > most) return EFBIG;
  out->resize(static_cast<size_t>(status.st_size));
  size_t at = 0;
  while (at < out->size()) {
    const ssize_t got = pread(fd, out->data() + at, out->size() - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;  // truncated meanwhile: the caller's digest check fails
    at += static_cast<size_t>(got);
  }
  out->resize(at);
  return 0;
}

std::optional<std::string> read_file(const std::string& path) {
  // With O_NONBLOCK a FIFO cannot block the caller.
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status{};
  if (!file || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  // Files in /proc and /sys have other sizes than st_size says, so this reads until the end.
  std::string text(static_cast<size_t>(status.st_size) + 1, '\0');
  size_t size = 0;
  for (;;) {
    if (size == text.size()) text.resize(2 * size + 4096);
    const ssize_t got = read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

int sync_file(int fd) {
  while (fsync(fd) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

int sync_folder(const std::string& path) {
  // No O_NOFOLLOW: the path, such as the cache's root, may be a link.
  const Fd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return errno;
  const int error = sync_file(fd.get());
  return error == EINVAL || error == ENOTSUP ? 0 : error;
}

int make_folders(const std::string& path, std::vector<std::string>* changed) {
  if (path.empty()) return ENOENT;
  int error = mkdir(path.c_str(), 0700) == 0 ? 0 : errno;
  if (error == ENOENT && path != "/") {
    error = make_folders(parent_of(path), changed);
    if (error == 0 && mkdir(path.c_str(), 0700) != 0) error = errno;
  }
  if (error == 0 && changed != nullptr) changed->push_back(parent_of(path));
  // Some systems answer EROFS or EACCES even for a folder that exists.
  struct stat status{};
  if (error == 0 || stat(path.c_str(), &status) != 0) return error;
  return S_ISDIR(status.st_mode) ? 0 : ENOTDIR;
}

int rename_new(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) return errno;
  struct stat status{};
  if (lstat(from.c_str(), &status) != 0) return errno;
  if (!S_ISDIR(status.st_mode)) {
    if (link(from.c_str(), to.c_str()) == 0) {
      unlink(from.c_str());
      return 0;
    }
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK) return errno;
    // The file system has neither RENAME_NOREPLACE nor hard links, so a plain rename follows this
    // check. If `to` appears in between, it is replaced, by a second copy of the same content.
    if (lstat(to.c_str(), &status) == 0) return EEXIST;
  }
  if (rename(from.c_str(), to.c_str()) == 0) return 0;
  return errno == ENOTEMPTY || errno == ENOTDIR ? EEXIST : errno;
}

void remove_tree(const std::string& path) {
  if (path.empty()) return;
  std::error_code error;
  std::filesystem::remove_all(path, error);
}

bool is_executable(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

std::string find_executable(std::string_view folders, const std::string& name) {
  while (!folders.empty()) {
    const size_t colon = std::min(folders.find(':'), folders.size());
    const std::filesystem::path folder = folders.substr(0, colon);
    folders.remove_prefix(std::min(colon + 1, folders.size()));
    const std::string path = (folder / name).string();
    if (folder.is_absolute() && is_executable(path)) return path;
  }
  return {};
}

uint64_t tree_bytes(const std::string& path) {
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0) return 0;
  if (S_ISREG(status.st_mode)) return static_cast<uint64_t>(status.st_size);
  if (!S_ISDIR(status.st_mode)) return 0;
  std::vector<std::string> names;
  list_folder(path, &names);
  uint64_t total = 0;
  for (const std::string& name : names) total += tree_bytes(path + "/" + name);
  return total;
}

int list_folder(const std::string& path, std::vector<std::string>* names) {
  names->clear();
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return errno;
  errno = 0;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names->push_back(name);
    errno = 0;
  }
  const int error = errno;
  closedir(folder);
  std::sort(names->begin(), names->end());
  return error;
}

int digest_file(const std::string& path, uint64_t most, std::string* sha256, uint64_t* size) {
  Fd fd;
  if (const int error = open_file(path, O_RDONLY, 0, &fd)) return error;
  struct stat status{};
  if (fstat(fd.get(), &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) return EISDIR;
  if (static_cast<uint64_t>(status.st_size) > most) return EFBIG;
  return digest_open_file(fd.get(), sha256, size);
}

int digest_open_file(int fd, std::string* sha256, uint64_t* size) {
  Sha256 hash;
  std::vector<uint8_t> buffer(256 << 10);
  *size = 0;
  while (true) {
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;
    hash.add({buffer.data(), static_cast<size_t>(got)});
    *size += static_cast<uint64_t>(got);
  }
  *sha256 = to_hex(hash.finish());
  return 0;
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {};
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string real_path(const std::string& path) {
  char* const resolved = realpath(path.c_str(), nullptr);
  const std::string real = resolved == nullptr ? "" : resolved;
  std::free(resolved);
  return real;
}

int64_t now_seconds() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec;
}

bool can_write(const std::string& folder) {
  return faccessat(AT_FDCWD, folder.c_str(), W_OK, AT_EACCESS) == 0;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "unknown-host";
  return name.data();
}

std::string unique_name() {
  static std::atomic<uint32_t> next{0};
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    random = static_cast<uint64_t>(now.tv_nsec);
  }
  std::string host = host_name().substr(0, 64);
  std::replace(host.begin(), host.end(), '/', '-');
  return fmt::format("{}.{}.{}.{:016x}", host, getpid(), next++, random);
}

}  // namespace opdock
