// Replaces functions of the C library, also for the code under test.
// SPDX-License-Identifier: Apache-2.0
#include "faults.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <ctime>

namespace opdock::testing {
namespace {

struct State {
  bool armed = false;
  std::string root;
  Fault fault;
  int count = 0;
  std::vector<std::string> calls;
};
State state;
int64_t clock_shift = 0;

template <class F>
F* real(F*, const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}
#define REAL(name)                             \
  ([] {                                        \
    static auto* found = real(&::name, #name); \
    return found;                              \
  }())

std::string path_of(int fd) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = readlink(link.c_str(), path.data(), path.size());
  return size > 0 ? std::string(path.data(), static_cast<size_t>(size)) : std::string();
}

// Calls the real function, unless the armed fault is due at this call.
template <class Call>
auto pass(const char* function, const std::string& path, const Call& call) -> decltype(call()) {
  if (!state.armed || !path.starts_with(state.root)) return call();
  if (!state.fault.function.empty() && state.fault.function != function) return call();
  state.calls.push_back(std::string(function) + " " + path.substr(state.root.size()));
  const bool is_turn = ++state.count == state.fault.nth || state.fault.nth == 0;
  if (is_turn && state.fault.what == Fault::kFail && state.fault.error != 0) {
    errno = state.fault.error;
    return -1;
  }
  if (is_turn && state.fault.what == Fault::kKillBefore) raise(SIGKILL);
  const auto result = call();
  if (is_turn && state.fault.what == Fault::kKillAfter) raise(SIGKILL);
  return result;
}

bool is_writing(int flags) {
  return (flags & (O_CREAT | O_WRONLY | O_RDWR | O_TRUNC)) != 0;
}

}  // namespace

void arm(const std::string& root, const Fault& fault) {
  state = {true, root, fault, 0, {}};
}

std::vector<std::string> disarm() {
  state.armed = false;
  return std::move(state.calls);
}

void shift_clock(int64_t seconds) {
  clock_shift = seconds;
}

}  // namespace opdock::testing

using namespace opdock::testing;

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  const auto call = [&] { return REAL(open)(path, flags, mode); };
  return is_writing(flags) ? pass("open", path, call) : call();
}

ssize_t write(int fd, const void* bytes, size_t size) {
  if (!state.armed) return REAL(write)(fd, bytes, size);
  return pass("write", path_of(fd), [&] { return REAL(write)(fd, bytes, size); });
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  if (!state.armed) return REAL(pwrite)(fd, bytes, size, offset);
  return pass("pwrite", path_of(fd), [&] { return REAL(pwrite)(fd, bytes, size, offset); });
}

// Never really syncs: it would take most of the tests' time, and the machine does not crash here.
int fsync(int fd) {
  if (!state.armed) return 0;
  return pass("fsync", path_of(fd), [] { return 0; });
}

int ftruncate(int fd, off_t size) noexcept {
  if (!state.armed) return REAL(ftruncate)(fd, size);
  return pass("ftruncate", path_of(fd), [&] { return REAL(ftruncate)(fd, size); });
}

int fchmod(int fd, mode_t mode) noexcept {
  if (!state.armed) return REAL(fchmod)(fd, mode);
  return pass("fchmod", path_of(fd), [&] { return REAL(fchmod)(fd, mode); });
}

int futimens(int fd, const struct timespec times[2]) noexcept {
  if (!state.armed) return REAL(futimens)(fd, times);
  return pass("futimens", path_of(fd), [&] { return REAL(futimens)(fd, times); });
}

int flock(int fd, int operation) noexcept {
  if (!state.armed) return REAL(flock)(fd, operation);
  // Locking does not change the file system, so it is counted only if the fault names it.
  if (state.fault.function != "flock") return REAL(flock)(fd, operation);
  return pass("flock", path_of(fd), [&] { return REAL(flock)(fd, operation); });
}

// A check changes nothing either, but a cache that cannot be written must learn of it here too.
int faccessat(int folder, const char* path, int mode, int flags) noexcept {
  const auto call = [&] { return REAL(faccessat)(folder, path, mode, flags); };
  const bool fails_all = state.fault.nth == 0 && state.fault.error != 0;
  return (mode & W_OK) != 0 && fails_all ? pass("faccessat", path, call) : call();
}

int mkdir(const char* path, mode_t mode) noexcept {
  return pass("mkdir", path, [&] { return REAL(mkdir)(path, mode); });
}

int unlink(const char* path) noexcept {
  return pass("unlink", path, [&] { return REAL(unlink)(path); });
}

int link(const char* from, const char* to) noexcept {
  return pass("link", to, [&] { return REAL(link)(from, to); });
}

int rename(const char* from, const char* to) noexcept {
  return pass("rename", to, [&] { return REAL(rename)(from, to); });
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  return pass("renameat2", to,
              [&] { return REAL(renameat2)(from_folder, from, to_folder, to, flags); });
}

int clock_gettime(clockid_t id, struct timespec* time) noexcept {
  const long result = syscall(SYS_clock_gettime, id, time);
  if (id == CLOCK_REALTIME) time->tv_sec += clock_shift;
  return static_cast<int>(result);
}

}  // extern "C"
