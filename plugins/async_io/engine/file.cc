// SPDX-License-Identifier: Apache-2.0
#include "file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "pages.h"

namespace async_io {
namespace {

Failure system_failure(Failure::Of of, int error) {
  Failure failure;
  failure.of = of;
  failure.error = error;
  return failure;
}

int open_path(const char* path, int flags) {
  // O_NONBLOCK makes open() fail for a pipe without another end, instead of waiting for it.
  int fd;
  do fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
  while (fd < 0 && errno == EINTR);
  return fd;
}

Failure open_descriptor(Job* job) {
  const Request& request = job->request;
  if (request.fd < 0) {
    job->fd = open_path(request.path.c_str(), request.is_write ? O_WRONLY | O_CREAT : O_RDONLY);
    job->is_own_file = job->fd >= 0;
    return job->fd >= 0 ? Failure{} : system_failure(Failure::Of::kOpening, errno);
  }
  // Our duplicate shares its flags with the caller's descriptor. Opening the file once more gives a
  // descriptor with its own flags. If that is impossible (no /proc), the duplicate is used as it
  // is.
  char link[40];
  snprintf(link, sizeof link, "/proc/self/fd/%d", job->fd);
  const int again = open_path(link, request.is_write ? O_WRONLY : O_RDONLY);
  if (again >= 0) {
    close(std::exchange(job->fd, again));
    job->is_own_file = true;
  }
  return {};
}

// Switches O_DIRECT on or off, and O_NONBLOCK off, with which io_uring would refuse to wait.
bool set_direct(int fd, bool direct) {
  const int flags = fcntl(fd, F_GETFL) & ~(O_DIRECT | O_NONBLOCK);
  return fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags) == 0;
}

// Switches to buffered I/O. Other threads may have blocks in flight: those end in the mode in which
// they were begun.
void give_up_direct(Job* job) {
  set_direct(job->fd, false);
  job->is_direct = false;
}

// Decides between direct and buffered I/O. Only pages that are whole in memory and in the file are
// transferred directly. Then no page is written both directly and through the page cache, which
// would leave one of the two stale; and if a process forks during a read, no page that the device
// writes to holds other data.
void choose_io_mode(Job* job, uint64_t size) {
  const Request& request = job->request;
  const uint64_t page = page_size();
  const uint64_t end = request.offset + request.bytes;
  const uint64_t first_page = (request.offset + page - 1) / page * page;
  const uint64_t last_page = end / page * page;
  job->blocks_end = request.bytes;
  if (!job->is_own_file) return;
  const bool is_aligned =
      (reinterpret_cast<uintptr_t>(request.memory) - request.offset) % page == 0 &&
      first_page < last_page;
  job->is_direct = is_aligned && set_direct(job->fd, true);
  if (!job->is_direct) {
    set_direct(job->fd, false);
    return;
  }
  if (request.is_write && end > size) {
    // Writes beyond the end of the file are done one at a time, and not in the background, so this
    // allocates the space first. If that is impossible, or there is no room, the writes themselves
    // report it.
    [[maybe_unused]] const int result = fallocate(job->fd, 0, static_cast<off_t>(request.offset),
                                                  static_cast<off_t>(request.bytes));
  }
  job->blocks_begin = first_page - request.offset;
  job->blocks_end = last_page - request.offset;
}

Failure end_of_file(uint64_t size) {
  Failure failure;
  failure.of = Failure::Of::kEndOfFile;
  failure.found = size;
  return failure;
}

}  // namespace

Failure open_file(Job* job) {
  const Request& request = job->request;
  if (const Failure failure = open_descriptor(job)) return failure;
  struct stat status;
  if (fstat(job->fd, &status) != 0) return system_failure(Failure::Of::kOpening, errno);
  if (!S_ISREG(status.st_mode)) return system_failure(Failure::Of::kKind, 0);
  uint64_t size = static_cast<uint64_t>(status.st_size);
  if (!request.is_write && request.offset + request.bytes > size) return end_of_file(size);
  if (request.is_write && request.file_size >= 0) {
    int result;
    do result = ftruncate(job->fd, request.file_size);
    while (result != 0 && errno == EINTR);
    if (result != 0) return system_failure(Failure::Of::kResizing, errno);
    size = static_cast<uint64_t>(request.file_size);
  }
  choose_io_mode(job, size);
  job->next = job->blocks_begin;
  return {};
}

Failure transfer(Job* job, uint64_t position, uint64_t bytes) {
  const Request& request = job->request;
  char* const memory = static_cast<char*>(request.memory);
  while (bytes > 0) {
    const bool was_direct = job->is_direct;
    const off_t offset = static_cast<off_t>(request.offset + position);
    const ssize_t done = request.is_write ? pwrite(job->fd, memory + position, bytes, offset)
                                          : pread(job->fd, memory + position, bytes, offset);
    if (done > 0) {
      position += static_cast<uint64_t>(done);
      bytes -= static_cast<uint64_t>(done);
      continue;
    }
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EINVAL && was_direct) {
      give_up_direct(job);
      continue;
    }
    if (done == 0 && !request.is_write) {
      struct stat status{};
      fstat(job->fd, &status);
      return end_of_file(static_cast<uint64_t>(status.st_size));
    }
    Failure failure = system_failure(
        request.is_write ? Failure::Of::kWriting : Failure::Of::kReading, done == 0 ? EIO : errno);
    failure.offset = static_cast<uint64_t>(offset);
    failure.bytes = bytes;
    return failure;
  }
  return {};
}

Failure finish_file(Job* job, const Failure& failure) {
  Failure found = failure;
  const uint64_t rest = job->request.bytes - job->blocks_end;
  if (!found && (job->blocks_begin > 0 || rest > 0)) {
    give_up_direct(job);
    found = transfer(job, 0, job->blocks_begin);
    if (!found) found = transfer(job, job->blocks_end, rest);
  }
  if (job->fd < 0) return found;
  const int result = close(std::exchange(job->fd, -1));
  // After EINTR the descriptor is closed too.
  if (result != 0 && errno != EINTR && !found && job->request.is_write)
    found = system_failure(Failure::Of::kClosing, errno);
  return found;
}

}  // namespace async_io
