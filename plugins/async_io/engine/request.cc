// SPDX-License-Identifier: Apache-2.0
#include "request.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <limits>

namespace async_io {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw Error(Error::Kind::kArgument, text);
}

void check_range(const Request& request) {
  constexpr uint64_t most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (request.memory == nullptr && request.bytes > 0)
    refuse("memory: found none, wanted " + std::to_string(request.bytes) + " bytes");
  if (request.bytes > most || request.offset > most - request.bytes)
    refuse("offset and bytes: found " + std::to_string(request.offset) + " and " +
           std::to_string(request.bytes) + ", wanted a sum below 2^63");
  if (request.file_size < 0) return;
  if (!request.is_write)
    refuse("file_size: found one for a read, wanted none; a read changes no file");
  if (static_cast<uint64_t>(request.file_size) < request.offset + request.bytes)
    refuse("file_size: found " + std::to_string(request.file_size) + ", wanted at least " +
           std::to_string(request.offset + request.bytes) + ", up to which the request writes");
}

void check_path(const std::string& path) {
  if (path.empty()) refuse("path: found an empty one, wanted a file's");
  if (path.find('\0') != std::string::npos)
    refuse("path: found a zero byte in '" + std::string(path.c_str()) + "', wanted none");
}

void check_descriptor(const Request& request) {
  const std::string descriptor = "fd: found " + std::to_string(request.fd);
  const int flags = fcntl(request.fd, F_GETFL);
  if (flags < 0) refuse(descriptor + ", which is not open; wanted an open file");
  const int unwanted = request.is_write ? O_RDONLY : O_WRONLY;
  if ((flags & O_ACCMODE) == unwanted)
    refuse(descriptor + (request.is_write ? ", open for reading only; open it for writing"
                                          : ", open for writing only; open it for reading"));
  if (request.is_write && (flags & O_APPEND) != 0)
    refuse(descriptor +
           ", opened with O_APPEND, which writes to the end whatever the offset; open "
           "it without");
}

// Returns a path for messages.
std::string path_of(int fd) {
  char link[40], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path);
  if (length > 0) return std::string(path, static_cast<size_t>(length));
  return "file descriptor " + std::to_string(fd);
}

}  // namespace

std::unique_ptr<Job> make_job(const Request& request) {
  check_range(request);
  if (request.fd < 0)
    check_path(request.path);
  else
    check_descriptor(request);
  auto job = std::make_unique<Job>();
  job->request = request;
  if (request.fd < 0) return job;
  job->request.path = path_of(request.fd);
  job->fd = fcntl(request.fd, F_DUPFD_CLOEXEC, 0);
  if (job->fd < 0)
    throw Error(Error::Kind::kSystem,
                "cannot duplicate file descriptor " + std::to_string(request.fd) + ": " +
                    error_text(errno) +
                    "; close files, or raise the limit of open files (ulimit -n)");
  return job;
}

}  // namespace async_io
