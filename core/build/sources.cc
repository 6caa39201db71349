// SPDX-License-Identifier: Apache-2.0
#include "build/sources.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/sha256.h"
#include "discover/trust.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFiles = 10000;

bool is_left_out(const std::string& name, bool is_folder) {
  if (name.starts_with('.') || name == "__pycache__") return true;
  if (name.starts_with("test_") || name.starts_with("bench_")) return true;
  if (is_folder) return name == "test" || name == "tests" || name == "bench" || name == "build";
  return name == "conftest.py" || name.ends_with(".pyc");
}

// O_NONBLOCK: a FIFO among the files must not stop us.
int open_file(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

std::string digest_of(const std::string& path) {
  const int fd = open_file(path);
  if (fd < 0) return "unreadable";
  Sha256 hasher;
  std::vector<uint8_t> buffer(1 << 16);
  ssize_t count = 0;
  while ((count = read(fd, buffer.data(), buffer.size())) > 0) {
    hasher.add({buffer.data(), static_cast<size_t>(count)});
  }
  close(fd);
  return count < 0 ? "unreadable" : to_hex(hasher.finish());
}

void list_folder(const std::string& folder, const std::string& prefix,
                 std::vector<SourceFile>* files, Stamps* stamps) {
  std::error_code error;
  if (stamps != nullptr) stamps->add(prefix.substr(0, prefix.empty() ? 0 : prefix.size() - 1));
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::error_code failed;
    // Of a link to a folder only its name counts: a circle of them must not be followed.
    const bool is_folder = at->is_directory(failed);
    const bool is_taken = !is_left_out(name, is_folder) && files->size() < kMaxFiles;
    const bool is_link_to_folder = is_folder && at->is_symlink(failed);
    if (stamps != nullptr && !is_left_out(name, !is_folder) && (!is_taken || is_link_to_folder)) {
      stamps->add_kind(prefix + name);  // were it the other kind, it would count
    }
    if (!is_taken || is_link_to_folder) continue;
    if (is_folder) {
      list_folder(at->path(), prefix + name + "/", files, stamps);
      continue;
    }
    if (stamps != nullptr) stamps->add(prefix + name);
    files->push_back({prefix + name, at->is_regular_file(failed) ? digest_of(at->path())
                                                                 : std::string("unreadable")});
    if (stamps != nullptr && files->back().sha256 == "unreadable") stamps->spoil();
  }
  if (error && stamps != nullptr) stamps->spoil();
}

Reason unreadable(const std::string& path, const char* why) {
  return make_reason(Code::kBuildSource, path + ": " + why, "a file that can be read");
}

bool write_all(int fd, const char* bytes, size_t size) {
  while (size != 0) {
    const ssize_t written = write(fd, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

bool copy_open_file(int from, const std::string& target, std::vector<Reason>* reasons) {
  const int to = open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  bool good = to >= 0;
  std::vector<char> buffer(1 << 16);
  ssize_t count = 0;
  while (good && (count = read(from, buffer.data(), buffer.size())) > 0) {
    good = write_all(to, buffer.data(), static_cast<size_t>(count));
  }
  const int error = errno;
  if (to >= 0 && close(to) != 0) good = false;
  if (good && count == 0) return true;
  const Code code = error == ENOSPC || error == EDQUOT ? Code::kBuildDiskFull : Code::kBuildSource;
  reasons->push_back(
      make_reason(code, target + ": " + std::strerror(error), "a copy of the plugin's source"));
  return false;
}

}  // namespace

std::vector<SourceFile> list_sources(const std::string& folder, Stamps* stamps) {
  std::vector<SourceFile> files;
  list_folder(folder, "", &files, stamps);
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.name < b.name; });
  return files;
}

bool copy_sources(const std::string& folder, const std::vector<SourceFile>& files,
                  const std::string& target, Trust* trust, std::vector<Reason>* reasons) {
  for (const SourceFile& file : files) {
    const std::string path = folder + "/" + file.name;
    std::error_code error;
    fs::create_directories(fs::path(target + "/" + file.name).parent_path(), error);
    const int fd = open_file(path);
    struct stat status{};
    if (fd < 0 || fstat(fd, &status) != 0) {
      reasons->push_back(unreadable(path, std::strerror(errno)));
      if (fd >= 0) close(fd);
      return false;
    }
    bool good = S_ISREG(status.st_mode);
    if (!good) reasons->push_back(unreadable(path, "no regular file"));
    if (good && trust != nullptr) {
      if (const std::optional<Reason> reason = trust->judge(path, fd, status)) {
        reasons->push_back(make_reason(Code::kBuildUntrusted, reason->found, reason->wanted));
        good = false;
      }
    }
    good = good && copy_open_file(fd, target + "/" + file.name, reasons);
    close(fd);
    if (!good) return false;
  }
  return true;
}

}  // namespace opdock
