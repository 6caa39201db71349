// Injects faults into system calls: partial transfers, interruptions, and kernels that take no more
// requests or end them with a spurious error. This program's own pread, pwrite and syscall replace
// the C library's.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <linux/aio_abi.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>

#include "support.h"

namespace async_io_test {
namespace {

constexpr long kEnter = 426;  // io_uring_enter

std::atomic<bool> is_faulty{false};
std::atomic<uint32_t> calls{0};
std::atomic<uint32_t> faults{0};
std::atomic<int> closing_error{0};
// Statistics about the requests of one thread: the most that one call hands to the kernel, the most
// in flight at any time, and the number of calls made while requests are in flight.
struct Handed {
  long at_once = 0;
  long in_flight = 0, most = 0;
  long calls_in_between = 0;

  void give(long count) {
    at_once = std::max(at_once, count);
    calls_in_between += in_flight > 0;
    in_flight += count;
    most = std::max(most, in_flight);
  }
};
Handed handed;
std::atomic<bool> is_counted{false};
std::string* cut_before_read = nullptr;  // file that plain() truncates before it transfers bytes

// Chooses the fault for one call: 1 to `kinds` in about half of the calls, otherwise 0 for none.
uint32_t next_fault(uint32_t kinds) {
  if (!is_faulty) return 0;
  const uint32_t found = (++calls * 2654435761u >> 16) % (2 * kinds);
  if (found >= kinds) return 0;
  ++faults;
  return found + 1;
}

long answer(int error) {
  errno = error;
  return -1;
}

long plain(long number, int fd, uintptr_t memory, size_t bytes, off64_t offset) {
  using Call = long (*)(long, ...);
  static const Call call = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "syscall"));
  if (cut_before_read != nullptr) {
    const bool is_cut = truncate(cut_before_read->c_str(), 4096) == 0;
    if (!is_cut) abort();
  }
  switch (next_fault(3)) {
    case 1:
      return answer(EINTR);
    case 2:
      bytes = bytes > 4096 ? 4096 : (bytes + 1) / 2;
      break;
    case 3:
      bytes = bytes > 3 ? bytes / 3 : bytes;
      break;
  }
  return call(number, fd, memory, bytes, offset);
}

}  // namespace
}  // namespace async_io_test

extern "C" {

// These names exist only for the linker: _FILE_OFFSET_BITS decides which of the two pread() is.
ssize_t faulty_pread(int fd, uintptr_t memory, size_t bytes, off64_t offset) __asm__("pread");
ssize_t faulty_pread64(int fd, uintptr_t memory, size_t bytes, off64_t offset) __asm__("pread64");
ssize_t faulty_pwrite(int fd, uintptr_t memory, size_t bytes, off64_t offset) __asm__("pwrite");
ssize_t faulty_pwrite64(int fd, uintptr_t memory, size_t bytes, off64_t offset) __asm__("pwrite64");

ssize_t faulty_pread(int fd, uintptr_t memory, size_t bytes, off64_t offset) {
  return async_io_test::plain(SYS_pread64, fd, memory, bytes, offset);
}
ssize_t faulty_pread64(int fd, uintptr_t memory, size_t bytes, off64_t offset) {
  return async_io_test::plain(SYS_pread64, fd, memory, bytes, offset);
}
ssize_t faulty_pwrite(int fd, uintptr_t memory, size_t bytes, off64_t offset) {
  return async_io_test::plain(SYS_pwrite64, fd, memory, bytes, offset);
}
ssize_t faulty_pwrite64(int fd, uintptr_t memory, size_t bytes, off64_t offset) {
  return async_io_test::plain(SYS_pwrite64, fd, memory, bytes, offset);
}

int close(int fd) {
  using Close = int (*)(int);
  static const Close real = reinterpret_cast<Close>(dlsym(RTLD_NEXT, "close"));
  const int result = real(fd);
  const int error = async_io_test::closing_error;
  return result == 0 && error != 0 ? static_cast<int>(async_io_test::answer(error)) : result;
}

long syscall(long number, ...) noexcept {
  using namespace async_io_test;
  using Call = long (*)(long, ...);
  static const Call call = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "syscall"));
  long a[6];
  va_list list;
  va_start(list, number);
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  // io_uring_enter takes 32-bit unsigned values; the upper halves of their registers are undefined.
  const uint32_t to_submit = static_cast<uint32_t>(a[1]);
  const uint32_t wanted_results = static_cast<uint32_t>(a[2]);
  if (number == kEnter && to_submit > 0) {
    switch (next_fault(4)) {
      case 1:
        return answer(EINTR);
      case 2:
        return answer(EAGAIN);
      case 3:
        return answer(EBUSY);
      case 4:
        a[1] = 1;
        break;
    }
  } else if (number == kEnter && wanted_results > 0) {
    if (next_fault(1) == 1) return answer(EINTR);
  } else if (number == SYS_io_submit) {
    switch (next_fault(3)) {
      case 1:
        return answer(EINTR);
      case 2:
        return answer(EAGAIN);
      case 3:
        a[1] = 1;
        break;
    }
    if (is_counted) handed.give(a[1]);
  } else if (number == SYS_io_getevents) {
    if (next_fault(1) == 1) return answer(EINTR);
    // one result per call, so that each arrives while other requests are in flight
    if (is_counted) a[2] = 1;
    const long count = call(number, a[0], a[1], a[2], a[3], a[4]);
    if (is_counted) handed.in_flight -= std::max(0L, count);
    for (long i = 0; i < count; ++i) {
      io_event& event = reinterpret_cast<io_event*>(a[3])[i];
      switch (next_fault(5)) {
        case 1:
          event.res = -EAGAIN;
          break;
        case 2:
          event.res = -EINTR;
          break;
        case 3:
          event.res = -ECANCELED;
          break;
        case 4:
          event.res /= 2;
          break;
        case 5:
          event.res = -EINVAL;
          break;
      }
    }
    return count;
  }
  return call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // extern "C"

namespace async_io_test {
namespace {

using FaultTest = EachBackend;

INSTANTIATE_TEST_SUITE_P(All, FaultTest, all_backends(), backend_name);

TEST_P(FaultTest, NothingIsLostOrTorn) {
  const std::string bytes = random_bytes(500'000, 1);
  std::mt19937 random(2);
  faults = 0;
  for (int round = 0; round < 30; ++round) {
    const size_t lead = round % 3 == 0 ? 64 : 0;
    const uint64_t offset = round % 2 == 0 ? 0 : 8192 + lead;
    Options options = options_of(GetParam(), 1 + random() % 2);
    options.block_size = 4096;
    const uint32_t depths[] = {1, 5, 20};
    options.queue_depth = depths[random() % 3];
    options.single_submit = random() % 2 == 0;
    Pages pages(bytes.size() + lead);
    char* const memory = static_cast<char*>(pages.data()) + lead;
    memcpy(memory, bytes.data(), bytes.size());
    std::filesystem::remove(path());
    {
      Engine engine(options);
      is_faulty = true;
      engine.run(write_of(path(), offset, memory, bytes.size()));
      is_faulty = false;
    }
    ASSERT_TRUE(contents(path()) == std::string(offset, '\0') + bytes) << "round " << round;
    memset(memory, 0, bytes.size());
    {
      Engine engine(options);
      is_faulty = true;
      engine.run(read_of(path(), offset, memory, bytes.size()));
      is_faulty = false;
    }
    ASSERT_TRUE(memcmp(memory, bytes.data(), bytes.size()) == 0) << "round " << round;
  }
  EXPECT_GT(faults, 100u);
}

TEST_P(FaultTest, AFileThatIsCutOffMeanwhileHasItsEndReported) {
  std::string file = path();
  std::string memory(100'000, '\0');
  folder.write("file", memory);
  Engine engine(options_of(GetParam()));
  // The offset is not aligned, so the engine reads with pread.
  const Request read = read_of(file, 1, memory.data(), 99'999);
  cut_before_read = &file;
  const std::string text = error_of([&] { engine.run(read); }, Error::Kind::kSystem);
  cut_before_read = nullptr;
  EXPECT_EQ(text, "'" + file +
                      "': found a file of 4096 bytes, wanted 99999 bytes at offset 1, which takes "
                      "100000; read less, or complete the file first");
}

// Observes the options' effects at Linux AIO's system calls; the threading code is the same for
// every backend.
TEST(OptionsTest, HaveTheirEffect) {
  TemporaryFolder folder;
  if (!takes_direct(folder)) GTEST_SKIP() << "this file system takes no O_DIRECT";
  if (!kernel_has(Backend::kAio)) GTEST_SKIP() << "this kernel refuses Linux AIO";
  const std::string path = (folder.path() / "file").string();
  Pages pages(64 * page_size());
  const auto handed_with = [&](bool single_submit, bool overlap_events) {
    Options options = options_of(Backend::kAio);
    options.block_size = page_size();
    options.queue_depth = 8;
    options.single_submit = single_submit;
    options.overlap_events = overlap_events;
    Engine engine(options);
    handed = {};
    is_counted = true;
    engine.run(write_of(path, 0, pages.data(), pages.bytes()));
    is_counted = false;
    return handed;
  };
  const Handed plain = handed_with(false, false);
  EXPECT_EQ(plain.at_once, 8);
  EXPECT_EQ(plain.most, 8);
  EXPECT_EQ(plain.calls_in_between, 0);
  const Handed single = handed_with(true, false);
  EXPECT_EQ(single.at_once, 1);
  EXPECT_EQ(single.most, 8);
  const Handed overlapped = handed_with(false, true);
  EXPECT_EQ(overlapped.at_once, 8);
  EXPECT_EQ(overlapped.most, 8);
  EXPECT_GT(overlapped.calls_in_between, 0);
}

// Network file systems and quotas report failed writes only when the file is closed.
TEST_P(FaultTest, AnErrorAtClosingFailsAWrite) {
  char memory[8] = "";
  Engine engine(options_of(GetParam()));
  const auto failure_of = [&](const Request& request, int error) {
    closing_error = error;
    const std::string text = error_of([&] { engine.run(request); }, Error::Kind::kSystem);
    closing_error = 0;
    return text;
  };
  EXPECT_EQ(failure_of(write_of(path(), 0, memory, 8), ENOSPC),
            "cannot finish the writing of '" + path() +
                "': No space left on device (errno 28); free space on the file system, or use "
                "another one");
  EXPECT_EQ(failure_of(write_of(path(), 0, memory, 8), EINTR), "");
  EXPECT_EQ(failure_of(read_of(path(), 0, memory, 8), EIO), "");
}

}  // namespace
}  // namespace async_io_test
