// Shared helpers for the tests of the I/O engine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <random>
#include <string>

#include "../../plugins/async_io/engine/engine.h"
#include "../../plugins/async_io/engine/pages.h"
#include "support/temporary_folder.h"

namespace async_io_test {

using namespace async_io;
using opdock_test::TemporaryFolder;

inline std::string random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; i += 4) {
    const uint32_t four = static_cast<uint32_t>(random());
    memcpy(&bytes[i], &four, std::min<size_t>(4, size - i));
  }
  return bytes;
}

// Zeroed memory of whole pages.
class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(std::max<size_t>(bytes, 1)) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Returns a file's bytes as std::ifstream reads them.
inline std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::string bytes(file ? static_cast<size_t>(file.tellg()) : 0, '\0');
  file.seekg(0);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

inline Request request(bool is_write, const std::string& path, uint64_t offset, void* memory,
                       uint64_t bytes) {
  Request made;
  made.is_write = is_write;
  made.path = path;
  made.offset = offset;
  made.memory = memory;
  made.bytes = bytes;
  return made;
}
inline Request read_of(const std::string& path, uint64_t offset, void* memory, uint64_t bytes) {
  return request(false, path, offset, memory, bytes);
}
inline Request write_of(const std::string& path, uint64_t offset, void* memory, uint64_t bytes) {
  return request(true, path, offset, memory, bytes);
}

inline Options options_of(Backend backend, uint32_t threads = 1) {
  Options options;
  options.backend = backend;
  options.num_threads = threads;
  return options;
}

// Returns the message of the Error of this kind that `work` throws, or "" if it throws none. An
// error of another kind fails the test.
inline std::string error_of(const std::function<void()>& work, Error::Kind kind) {
  try {
    work();
  } catch (const Error& error) {
    if (error.kind() == kind) return error.what();
    ADD_FAILURE() << "an error of another kind: " << error.what();
  }
  return "";
}

// Runs `work` in a forked child. Returns its result, or how else the child ended. SIGALRM ends a
// child that hangs.
inline std::string in_child(const std::function<std::string()>& work) {
  int ends[2];
  if (pipe(ends) != 0) return "pipe failed";
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    std::string answer;
    try {
      answer = work();
    } catch (const std::exception& error) {
      answer = std::string("exception: ") + error.what();
    }
    const bool is_told = write(ends[1], answer.data(), answer.size()) >= 0;
    _exit(is_told ? 0 : 1);
  }
  close(ends[1]);
  std::string answer;
  char part[512];
  for (ssize_t got; (got = read(ends[0], part, sizeof part)) > 0;)
    answer.append(part, static_cast<size_t>(got));
  close(ends[0]);
  int status = -1;
  waitpid(child, &status, 0);
  if (status != 0) answer += "(status " + std::to_string(status) + ")";
  return answer;
}

inline size_t entries(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}
inline size_t open_files() {
  return entries("/proc/self/fd");
}
inline size_t threads() {
  return entries("/proc/self/task");
}

// Whether files in this folder can be opened for direct I/O.
inline bool takes_direct(const TemporaryFolder& folder) {
  const std::string path = (folder.path() / "direct").string();
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  unlink(path.c_str());
  return fd >= 0;
}

// Whether the kernel provides a queue of this kind with 32 entries, an engine's usual size.
inline bool kernel_has(Backend backend) {
  if (backend == Backend::kUring) {
    io_uring_params params{};
    const long fd = syscall(425 /* io_uring_setup */, 32, &params);
    if (fd >= 0) close(static_cast<int>(fd));
    return fd >= 0 && (params.features & IORING_FEAT_SINGLE_MMAP) != 0;
  }
  if (backend == Backend::kAio) {
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, 32, &context) != 0) return false;
    syscall(SYS_io_destroy, context);
  }
  return true;
}

// Runs a test for each backend. It is skipped only if the kernel refuses the backend.
class EachBackend : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (!kernel_has(GetParam())) GTEST_SKIP() << "this kernel refuses " << name(GetParam());
    Engine engine(options_of(GetParam()));
  }
  std::string path(const char* name = "file") const { return (folder.path() / name).string(); }

  TemporaryFolder folder;
};

inline std::string backend_name(const testing::TestParamInfo<Backend>& info) {
  switch (info.param) {
    case Backend::kUring:
      return "IoUring";
    case Backend::kAio:
      return "LinuxAio";
    case Backend::kThreads:
      return "Threads";
    case Backend::kAny:
      break;
  }
  return "Any";
}

inline auto all_backends() {
  return testing::Values(Backend::kUring, Backend::kAio, Backend::kThreads);
}

}  // namespace async_io_test
