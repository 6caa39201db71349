// Kernels and containers that forbid io_uring or Linux AIO, and the memory that I/O works on.
// SPDX-License-Identifier: Apache-2.0
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <initializer_list>
#include <new>
#include <vector>

#include "support.h"
#include "support/sanitizer.h"

namespace async_io_test {
namespace {

constexpr unsigned kSetupOfUring = 425;

// From now on these calls fail with `error` in this process.
bool forbid(std::initializer_list<unsigned> calls, unsigned error) {
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const unsigned call : calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// Runs in a child: the report of an engine, once it has written and read a file.
std::string report_with(std::initializer_list<unsigned> forbidden, unsigned error,
                        Backend backend = Backend::kAny) {
  TemporaryFolder folder;
  return in_child([&]() -> std::string {
    if (!forbid(forbidden, error)) return "skip";
    const std::string path = (folder.path() / "file").string();
    const std::string bytes = random_bytes(50'000, 1);
    Pages pages(bytes.size(), false);
    memcpy(pages.data(), bytes.data(), bytes.size());
    try {
      Engine engine(options_of(backend));
      engine.run(write_of(path, 0, pages.data(), bytes.size()));
      memset(pages.data(), 0, pages.bytes());
      engine.run(read_of(path, 0, pages.data(), bytes.size()));
      if (memcmp(pages.data(), bytes.data(), bytes.size()) != 0) return "wrong bytes";
      return engine.report();
    } catch (const Error& refusal) {
      return refusal.what();
    }
  });
}

constexpr char kNoUring[] =
    "io_uring_setup: Operation not permitted (errno 1); a container's seccomp profile or the "
    "sysctl "
    "kernel.io_uring_disabled forbids it";

TEST(BackendTest, LinuxAioStandsInForIoUring) {
  const std::string report = report_with({kSetupOfUring}, EPERM);
  if (report == "skip") GTEST_SKIP() << "no seccomp filter may be set here";
  if (report.substr(0, 9) != "Linux AIO") GTEST_SKIP() << "no Linux AIO here: " << report;
  EXPECT_EQ(report, "Linux AIO, 1 thread\nnot io_uring: " + std::string(kNoUring));
}

TEST(BackendTest, PlainCallsStandInForBoth) {
  const std::string report = report_with({kSetupOfUring, SYS_io_setup}, ENOSYS);
  if (report == "skip") GTEST_SKIP() << "no seccomp filter may be set here";
  EXPECT_EQ(report,
            "pread and pwrite, 1 thread\n"
            "not io_uring: io_uring_setup: Function not implemented (errno 38)\n"
            "not Linux AIO: io_setup: Function not implemented (errno 38); a container's seccomp "
            "profile forbids it, or the kernel lacks it");
}

TEST(BackendTest, OneThatWasAskedForIsNotReplaced) {
  const std::string report = report_with({kSetupOfUring}, EPERM, Backend::kUring);
  if (report == "skip") GTEST_SKIP() << "no seccomp filter may be set here";
  EXPECT_EQ(report, "io_uring cannot be used: " + std::string(kNoUring) +
                        "; leave the choice of the backend to the engine");
}

// Where setting up is allowed but using is not, the blocks still arrive.
TEST(BackendTest, ARingThatTakesNothingIsNoMatter) {
  for (const unsigned call : {426u, static_cast<unsigned>(SYS_io_submit)}) {
    const std::string report =
        report_with({call}, EPERM, call == 426u ? Backend::kUring : Backend::kAio);
    if (report == "skip") GTEST_SKIP() << "no seccomp filter may be set here";
    EXPECT_EQ(report.find("wrong"), std::string::npos) << report;
    EXPECT_NE(report.find(call == 426u ? "io_uring" : "Linux AIO"), std::string::npos) << report;
  }
}

TEST(PagesTest, AreWholeAndZeroed) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{5000}, size_t{3} << 20}) {
    const Pages pages(bytes, false);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pages.data()) % page_size(), 0u);
    EXPECT_EQ(pages.bytes(), bytes);
    EXPECT_TRUE(std::string(static_cast<char*>(pages.data()), bytes) == std::string(bytes, '\0'));
    EXPECT_FALSE(pages.is_locked());
    EXPECT_EQ(pages.why_not_locked(), "");
  }
  EXPECT_EQ(Pages(0, true).data(), nullptr);
  EXPECT_THROW(Pages(SIZE_MAX, false), std::bad_alloc);
  EXPECT_THROW(Pages(SIZE_MAX / 2, false), std::bad_alloc);
}

TEST(PagesTest, MayBeMoved) {
  Pages pages(5000, false);
  void* const data = pages.data();
  Pages moved(std::move(pages));
  EXPECT_EQ(moved.data(), data);
  pages = std::move(moved);
  EXPECT_EQ(pages.data(), data);
  EXPECT_EQ(pages.bytes(), 5000u);
}

size_t locked_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    size_t number = 0;
    if (word == "VmLck:" && status >> number) return number;
  }
  return 0;
}

TEST(PagesTest, AreLockedOrSayWhyNot) {
#if defined(OPDOCK_TEST_ASAN) || defined(OPDOCK_TEST_TSAN)
  GTEST_SKIP() << "the sanitizers let mlock do nothing";
#endif
  EXPECT_EQ(in_child([]() -> std::string {
              const size_t before = locked_kilobytes();
              const Pages pages(64 * 1024, true);
              if (!pages.is_locked()) return "skip";
              return std::to_string(locked_kilobytes() - before);
            }),
            "64");
  EXPECT_EQ(
      in_child([]() -> std::string {
        const rlimit limit{8192, 8192};
        setrlimit(RLIMIT_MEMLOCK, &limit);
        if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) return "cannot give up root";
        const Pages pages(64 * 1024, true);
        memset(pages.data(), 1, pages.bytes());
        return std::string(pages.is_locked() ? "locked " : "") + pages.why_not_locked();
      }),
      "mlock of 65536 bytes: Cannot allocate memory (errno 12); the limit of locked memory is "
      "8192 bytes (ulimit -l)");
}

}  // namespace
}  // namespace async_io_test
