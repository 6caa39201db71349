// SPDX-License-Identifier: Apache-2.0
#include "discover/scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "base/fd.h"
#include "base/utf8.h"
#include "discover/places.h"
#include "discover/sources.h"
#include "fmt/format.h"

namespace opdock {
namespace {

constexpr const char* kWantedFile = "a regular file, or a symbolic link to one";

std::string kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "a special file";
}

// Opens a regular file. Checks its kind first, because opening a device can have effects. A link is
// opened through the descriptor of its checked target and not by its name, which may lead to a
// device by then. If it is no link, only a user who may create devices could replace the regular
// file by one. Returns an invalid Fd and sets *refusal on failure.
Fd open_regular(const FileSite& site, const std::string& path, struct stat* status, bool* is_link,
                std::optional<Reason>* refusal) {
  constexpr int kFlags = O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
  const char* const name = site.name.c_str();
  const auto refuse = [&](Reason reason) {
    *refusal = std::move(reason);
    return Fd();
  };
  if (fstatat(site.folder_fd, name, status, AT_SYMLINK_NOFOLLOW) != 0) {
    return refuse(open_reason(errno, path));
  }
  *is_link = S_ISLNK(status->st_mode);
  Fd seen;
  if (*is_link) {
    seen = Fd(openat(site.folder_fd, name, O_PATH | O_CLOEXEC));
    if (!seen || fstat(seen.get(), status) != 0) {
      const bool is_dangling = errno == ENOENT || errno == ENOTDIR;
      Reason reason = open_reason(is_dangling ? ELOOP : errno, path);
      if (is_dangling) reason.found = path + ", whose target is missing";
      return refuse(std::move(reason));
    }
  }
  Fd file;
  if (S_ISREG(status->st_mode)) {
    const std::string again = *is_link ? descriptor_path(seen.get()) : std::string();
    file = Fd(again.empty() ? openat(site.folder_fd, name, kFlags | (*is_link ? 0 : O_NOFOLLOW))
                            : open(again.c_str(), kFlags));
    if (!file || fstat(file.get(), status) != 0) return refuse(open_reason(errno, path));
  }
  if (S_ISREG(status->st_mode)) return file;
  return refuse(make_reason(Code::kNotRegular,
                            fmt::format("{}, {}", path, kind_of(status->st_mode)), kWantedFile));
}

// Puts the reasons that were found before reading first; one that rejects changes the verdict.
void prepend(std::vector<Reason> reasons, Verdict* verdict) {
  for (const Reason& reason : reasons) {
    if (info(reason.code).severity == Severity::kReject) verdict->state = State::kRejected;
  }
  verdict->reasons.insert(verdict->reasons.begin(), std::make_move_iterator(reasons.begin()),
                          std::make_move_iterator(reasons.end()));
}

}  // namespace

FileStamp stamp_of(const struct stat& status) {
  const auto nanoseconds = [](const timespec& time) {
    return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
  };
  return {status.st_dev, status.st_ino, static_cast<uint64_t>(status.st_size),
          nanoseconds(status.st_mtim), nanoseconds(status.st_ctim)};
}

std::string descriptor_path(int fd) {
  // The path has the process's number and not "self", since a debugger uses it from another
  // process.
  std::array<char, 32> self{};
  if (readlink("/proc/self", self.data(), self.size() - 1) <= 0) return {};
  return fmt::format("/proc/{}/fd/{}", self.data(), fd);
}

Candidate rejected(std::string path, std::string origin, Reason reason) {
  Candidate candidate;
  candidate.path = escape_bytes(path);
  candidate.origin = std::move(origin);
  candidate.file.path = candidate.path;
  candidate.verdict.state = State::kRejected;
  candidate.verdict.reasons.push_back(std::move(reason));
  return candidate;
}

Candidate look_at(const FileSite& site, std::string path, std::string origin, Trust* trust,
                  const TrustedPath& trusted, const MachineFacts& machine, Linker* linker,
                  Depth depth) {
  if (!is_utf8(path)) {
    return rejected(path, origin,
                    make_reason(Code::kNameInvalid, fmt::format("\"{}\"", escape_bytes(path)),
                                "a path in UTF-8"));
  }
  if (path.size() >= PATH_MAX) {
    return rejected(path, origin, open_reason(ENAMETOOLONG, path));
  }
  struct stat status{};
  bool is_link = false;
  std::optional<Reason> refusal;
  const Fd file = open_regular(site, path, &status, &is_link, &refusal);
  if (refusal) return rejected(path, origin, std::move(*refusal));
  const int fd = file.get();
  Candidate candidate;
  candidate.path = std::move(path);
  candidate.origin = std::move(origin);
  std::vector<Reason> reasons;
  candidate.stamp = stamp_of(status);
  if (trust != nullptr) {
    const TrustedPath led = is_link ? trust->check_path(candidate.path) : trusted;
    if (led.reason) reasons.push_back(*led.reason);
    std::optional<Reason> own;
    if (!led.has_consent) own = trust->check_file(fd, status, candidate.path);
    if (own) reasons.push_back(std::move(*own));
  }
  candidate.file = read_file_facts(fd, candidate.stamp.size, candidate.path, depth);
  candidate.file.link = linker->link(candidate.file.library, candidate.path);
  if (depth == Depth::kJudge) candidate.file.library.reset();  // not needed any more
  if (fstat(fd, &status) != 0 || stamp_of(status) != candidate.stamp) {
    reasons.push_back(make_reason(Code::kFileChanged, candidate.path + ", written to meanwhile",
                                  "the same size and times before and after reading"));
  }
  candidate.verdict = judge(candidate.file, machine);
  prepend(std::move(reasons), &candidate.verdict);
  return candidate;
}

std::vector<FileSite> list_folder(int folder_fd, std::vector<std::string>* folders, int* problem) {
  *problem = 0;
  std::vector<FileSite> sites;
  const int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* folder = fd < 0 ? nullptr : fdopendir(fd);
  if (folder == nullptr) {
    *problem = errno;
    if (fd >= 0) close(fd);
    return sites;
  }
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(folder);
    if (entry == nullptr) break;
    const std::string_view name(entry->d_name);
    if (!name.ends_with(".so")) {
      const bool is_file =
          entry->d_type != DT_DIR && entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN;
      if (is_file || name.starts_with('.') || !is_source_folder(folder_fd, entry->d_name)) continue;
      folders->emplace_back(name);
      continue;
    }
    sites.push_back({folder_fd, std::string(name)});
  }
  *problem = errno;
  closedir(folder);
  // std::string compares unsigned bytes, so the order does not depend on the locale.
  std::sort(sites.begin(), sites.end(),
            [](const FileSite& a, const FileSite& b) { return a.name < b.name; });
  std::sort(folders->begin(), folders->end());
  return sites;
}

}  // namespace opdock
