// SPDX-License-Identifier: Apache-2.0
#include "build/limits.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>

namespace opdock {
namespace {

constexpr uint64_t kUsualStack = 8ull << 20;  // the stack size that compilers are written for
// A disk with less than this left counts as full: the program that failed to write has already
// removed its half-written files.
constexpr uint64_t kFewBytes = 256 << 10, kFewFiles = 32;

// A text that a log contains when a limit was hit, whatever the limit's value is.
struct Mark {
  std::string_view text, wanted, advice;
  int signal = 0;  // a signal that means the same; 0: none
};
constexpr Mark kMarks[] = {
    {"Too many open files", "leave to open more files",
     "raise the limit of open files (ulimit -n 4096)"},
    {"Resource temporarily unavailable", "leave to start more processes",
     "raise the limit of processes (ulimit -u, or the container's), or build with fewer jobs "
     "(opdock build --jobs 1)"},
    {"CPU time limit exceeded", "leave to compute for longer",
     "raise the limit of processor time (ulimit -t unlimited)", SIGXCPU},
};

uint64_t own_limit(decltype(RLIMIT_STACK) resource) {
  rlimit limit{};
  const bool is_set = getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_set ? limit.rlim_cur : UINT64_MAX;
}

Reason limit_reason(const std::string& found, std::string wanted, std::string_view advice) {
  Reason reason = make_reason(Code::kBuildLimit, found, std::move(wanted));
  reason.advice = advice;
  return reason;
}

Reason file_limit_reason(const std::string& found, uint64_t bytes) {
  const std::string limit = bytes == UINT64_MAX ? "" : fmt::format(" of {} bytes", bytes);
  return limit_reason(found, "leave to write larger files than the limit" + limit,
                      "raise the limit of file sizes (ulimit -f unlimited)");
}

}  // namespace

ToolLimits own_limits() {
  return {own_limit(RLIMIT_FSIZE), own_limit(RLIMIT_STACK)};
}

std::optional<Reason> hit_limit(const ToolLimits& limits, const ProcessEnd& end,
                                std::string_view log, const std::string& error) {
  const auto says = [&](std::string_view text) { return log.find(text) != log.npos; };
  const auto was_killed_by = [&](int number) {
    return end.kind == ProcessEnd::kSignal && end.number == number;
  };
  if (was_killed_by(SIGXFSZ) || says("File size limit exceeded") || says("File too large"))
    return file_limit_reason(error, limits.file_bytes);
  const bool is_crash = was_killed_by(SIGSEGV) || was_killed_by(SIGBUS) ||
                        says("Segmentation fault") || says("Argument list too long");
  if (is_crash && limits.stack_bytes < kUsualStack) {
    return limit_reason(error,
                        fmt::format("the usual stack of {} KiB: this process's limit is {} KiB",
                                    kUsualStack >> 10, limits.stack_bytes >> 10),
                        "raise the limit of the stack (ulimit -s 8192)");
  }
  for (const Mark& mark : kMarks) {
    const bool is_hit = says(mark.text) || (mark.signal != 0 && was_killed_by(mark.signal));
    if (is_hit) return limit_reason(error, std::string(mark.wanted), mark.advice);
  }
  return std::nullopt;
}

std::optional<Reason> full_disk(const std::string& folder, const std::string& error) {
  struct statvfs disk{};
  if (statvfs(folder.c_str(), &disk) != 0) return std::nullopt;
  const uint64_t bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  // Some file systems do not count files: f_files is 0.
  const bool has_files = disk.f_files == 0 || disk.f_favail >= kFewFiles;
  if (bytes >= kFewBytes && has_files) return std::nullopt;
  return make_reason(Code::kBuildDiskFull, error,
                     fmt::format("room in {}: it has {} KiB and {} files left", folder, bytes >> 10,
                                 disk.f_favail));
}

Reason cannot_write(const std::string& path, int error, Code otherwise, std::string wanted) {
  const std::string found = path + ": " + std::strerror(error);
  if (error == EFBIG) return file_limit_reason(found, own_limits().file_bytes);
  const bool is_full = error == ENOSPC || error == EDQUOT;
  return make_reason(is_full ? Code::kBuildDiskFull : otherwise, found, std::move(wanted));
}

}  // namespace opdock
