// Tests requests that are refused or that fail, and their messages.
// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <vector>

#include "support.h"

namespace async_io_test {
namespace {

class ErrorTest : public EachBackend {
 protected:
  // Returns the message with which running the request fails.
  std::string failure_of(const Request& request) const {
    Engine engine(options_of(GetParam()));
    return error_of([&] { engine.run(request); }, Error::Kind::kSystem);
  }
  Pages pages{1 << 20};
};

INSTANTIATE_TEST_SUITE_P(All, ErrorTest, all_backends(), backend_name);

TEST_P(ErrorTest, AMissingFile) {
  const std::string text = failure_of(read_of(path("none"), 0, pages.data(), 4096));
  EXPECT_EQ(text,
            "cannot open '" + path("none") +
                "' for reading: No such file or directory (errno 2); a read wants an existing "
                "file, and a write an existing folder");
  EXPECT_FALSE(std::filesystem::exists(path("none")));
  EXPECT_NE(failure_of(write_of(path("none") + "/file", 0, pages.data(), 1)), "");
}

TEST_P(ErrorTest, AFolder) {
  const std::string where = folder.path().string();
  EXPECT_EQ(
      failure_of(read_of(where, 0, pages.data(), 4096)),
      "'" + where + "': found a folder or a device, wanted a regular file; give another path");
  EXPECT_EQ(failure_of(write_of(where, 0, pages.data(), 4096)),
            "cannot open '" + where +
                "' for writing: Is a directory (errno 21); give the path of a file");
}

TEST_P(ErrorTest, APipeIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_NE(failure_of(read_of(path(), 0, pages.data(), 1)), "");
  EXPECT_NE(failure_of(write_of(path(), 0, pages.data(), 1)), "");
}

TEST_P(ErrorTest, AFileThatEndsTooEarly) {
  folder.write("file", std::string(10'000, 'x'));
  memset(pages.data(), 'G', pages.bytes());
  EXPECT_EQ(failure_of(read_of(path(), 8'192, pages.data(), 4'096)),
            "'" + path() +
                "': found a file of 10000 bytes, wanted 4096 bytes at offset 8192, which takes "
                "12288; read less, or complete the file first");
  EXPECT_EQ(static_cast<char*>(pages.data())[0], 'G');
  EXPECT_NE(failure_of(read_of(path(), 20'000, pages.data(), 1)), "");
  EXPECT_EQ(failure_of(read_of(path(), 9'999, pages.data(), 1)), "");
}

TEST_P(ErrorTest, AFileWithoutTheRight) {
  folder.write("file", "kept");
  chmod(path().c_str(), 0444);
  chmod(folder.path().c_str(), 0755);
  const std::string text = in_child([&]() -> std::string {
    // Root may write any file, so the child becomes another user.
    if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) return "cannot become another user";
    return failure_of(write_of(path(), 0, pages.data(), 4096));
  });
  EXPECT_EQ(text,
            "cannot open '" + path() +
                "' for writing: Permission denied (errno 13); give this user the right to it, "
                "or use another file");
  EXPECT_EQ(contents(path()), "kept");
}

TEST_P(ErrorTest, AWriteBeyondTheLimitOfFileSizes) {
  for (const size_t lead : {0, 64}) {
    const std::string text = in_child([&] {
      const rlimit limit{300'000, 300'000};
      setrlimit(RLIMIT_FSIZE, &limit);
      return failure_of(
          write_of(path(), 0, static_cast<char*>(pages.data()) + lead, pages.bytes() - 64));
    });
    EXPECT_EQ(text.substr(0, 13), "cannot write ");
    EXPECT_NE(text.find("of '" + path() + "': File too large (errno 27); raise the limit"),
              std::string::npos)
        << text;
  }
}

TEST_P(ErrorTest, AFullFileSystem) {
  const std::string text = in_child([&]() -> std::string {
    if (unshare(getuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", folder.path().c_str(), "tmpfs", 0, "size=256k") != 0)
      return "skip";
    return failure_of(write_of(path(), 0, pages.data(), pages.bytes()));
  });
  if (text == "skip") GTEST_SKIP() << "no small file system may be mounted here";
  EXPECT_EQ(text.substr(0, 13), "cannot write ");
  EXPECT_NE(text.find("No space left on device (errno 28); free space"), std::string::npos) << text;
}

TEST_P(ErrorTest, MemoryThatCannotBeRead) {
  mprotect(static_cast<char*>(pages.data()) + 512 * 1024, 4096, PROT_NONE);
  for (const size_t lead : {0, 64}) {
    const std::string text = failure_of(
        write_of(path(), 0, static_cast<char*>(pages.data()) + lead, pages.bytes() - 4096));
    EXPECT_NE(text.find("Bad address (errno 14); give memory"), std::string::npos) << text;
  }
}

// Two bad requests among good ones: the good ones succeed, and wait_all reports the first bad one.
TEST_P(ErrorTest, OneFailureHarmsNoOther) {
  const std::string bytes = random_bytes(200'000, 1);
  folder.write("good", bytes);
  folder.write("short", std::string(5'000, 's'));
  Engine engine(options_of(GetParam(), 2));
  std::vector<std::string> found(20, std::string(bytes.size(), '\0'));
  for (size_t i = 0; i < found.size(); ++i) {
    const char* name = i == 13 ? "none" : i == 7 ? "short" : "good";
    engine.submit(read_of(path(name), 0, found[i].data(), found[i].size()));
  }
  const std::string text = error_of([&] { engine.wait_all(); }, Error::Kind::kSystem);
  EXPECT_NE(text.find(path("short")), std::string::npos) << text;
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(i == 7 || i == 13 || found[i] == bytes) << i;
  EXPECT_EQ(engine.wait_all(), 0u);  // the error was already reported once
}

std::string refusal_of(const Request& request) {
  Engine engine({});
  bool is_called = false;
  Request called = request;
  called.context = &is_called;
  called.done = [](void* context) { *static_cast<bool*>(context) = true; };
  const std::string text = error_of([&] { engine.submit(called); }, Error::Kind::kArgument);
  engine.wait_all();
  EXPECT_FALSE(is_called);
  return text;
}

TEST(RefusalTest, OfARequest) {
  char memory[8] = "";
  EXPECT_EQ(refusal_of(read_of("", 0, memory, 8)), "path: found an empty one, wanted a file's");
  EXPECT_EQ(refusal_of(read_of(std::string("a\0b", 3), 0, memory, 8)),
            "path: found a zero byte in 'a', wanted none");
  EXPECT_EQ(refusal_of(read_of("file", 0, nullptr, 8)), "memory: found none, wanted 8 bytes");
  EXPECT_EQ(refusal_of(read_of("file", uint64_t{1} << 63, memory, 8)),
            "offset and bytes: found 9223372036854775808 and 8, wanted a sum below 2^63");
  EXPECT_NE(refusal_of(read_of("file", 5, memory, UINT64_MAX)), "");
  Request sized = read_of("file", 0, memory, 8);
  sized.file_size = 8;
  EXPECT_EQ(refusal_of(sized),
            "file_size: found one for a read, wanted none; a read changes no file");
  sized.is_write = true;
  sized.offset = 1;
  EXPECT_EQ(refusal_of(sized),
            "file_size: found 8, wanted at least 9, up to which the request writes");
}

TEST(RefusalTest, OfADescriptor) {
  TemporaryFolder folder;
  const std::string path = folder.write("file", "12345678").string();
  char memory[8];
  const auto refusal = [&](bool is_write, int flags) {
    Request request = async_io_test::request(is_write, "", 0, memory, 8);
    request.fd = open(path.c_str(), flags | O_CLOEXEC);
    const std::string text = refusal_of(request);
    close(request.fd);
    return text.substr(text.find_first_of(",", 0));
  };
  EXPECT_EQ(refusal(true, O_RDONLY), ", open for reading only; open it for writing");
  EXPECT_EQ(refusal(false, O_WRONLY), ", open for writing only; open it for reading");
  EXPECT_EQ(refusal(true, O_WRONLY | O_APPEND),
            ", opened with O_APPEND, which writes to the end whatever the offset; open it without");
  Request closed = read_of("", 0, memory, 8);
  closed.fd = 12345;
  EXPECT_EQ(refusal_of(closed), "fd: found 12345, which is not open; wanted an open file");
}

TEST(RefusalTest, OfAnOption) {
  const auto refusal = [](void (*change)(Options*)) {
    Options options;
    change(&options);
    return error_of([&] { Engine engine(options); }, Error::Kind::kArgument);
  };
  EXPECT_EQ(refusal([](Options* options) { options->block_size = 0; }),
            "block_size: found 0, wanted 1 to 1073741824");
  EXPECT_EQ(refusal([](Options* options) { options->queue_depth = 32769; }),
            "queue_depth: found 32769, wanted 1 to 32768");
  EXPECT_EQ(refusal([](Options* options) { options->num_threads = 1025; }),
            "num_threads: found 1025, wanted 1 to 1024");
}

TEST(RefusalTest, OfATicket) {
  TemporaryFolder folder;
  Engine engine({});
  const auto refusal = [&](uint64_t ticket) {
    return error_of([&] { engine.wait(ticket); }, Error::Kind::kArgument);
  };
  const uint64_t ticket = engine.submit(write_of((folder.path() / "file").string(), 0, nullptr, 0));
  engine.wait(ticket);
  EXPECT_EQ(refusal(ticket),
            "ticket: found " + std::to_string(ticket) +
                ", wanted one that submit has given and nobody has waited for yet");
  EXPECT_NE(refusal(0), "");
  EXPECT_NE(refusal(ticket + 1), "");
}

}  // namespace
}  // namespace async_io_test
