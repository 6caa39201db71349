// Tests kernels and containers that forbid io_uring or Linux AIO: the engine falls back to another
// backend.
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

// Installs a seccomp filter: these system calls fail with `error` in this process from now on.
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

// Writes and reads a file in a child in which system calls are forbidden. Returns the engine's
// report or error, or "skip" if the filter cannot be installed.
std::string report_with(std::initializer_list<unsigned> forbidden, unsigned error,
                        Backend backend = Backend::kAny) {
  TemporaryFolder folder;
  return in_child([&]() -> std::string {
    if (!forbid(forbidden, error)) return "skip";
    const std::string path = (folder.path() / "file").string();
    const std::string bytes = random_bytes(50'000, 1);
    Pages pages(bytes.size());
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

// Setup is allowed but submission is forbidden: the data still arrives, and the report still names
// the backend.
void expect_no_matter(Backend backend, unsigned forbidden) {
  const std::string report = report_with({forbidden}, EPERM, backend);
  if (report == "skip") GTEST_SKIP() << "no seccomp filter may be set here";
  if (report.starts_with(std::string(name(backend)) + " cannot be used")) GTEST_SKIP() << report;
  EXPECT_EQ(report, std::string(name(backend)) + ", 1 thread");
}

TEST(BackendTest, AnIoUringThatTakesNothingIsNoMatter) {
  expect_no_matter(Backend::kUring, 426);
}

TEST(BackendTest, ALinuxAioThatTakesNothingIsNoMatter) {
  expect_no_matter(Backend::kAio, SYS_io_submit);
}

}  // namespace
}  // namespace async_io_test
