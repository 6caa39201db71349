// Tests machines on which no compiler can work: resource limits, a full disk, no /dev. The reason
// must name the cause, whatever message the affected tool prints. Uses the real tools, in a child
// process with such an environment.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "build_fixture.h"
#include "cache_folder.h"

namespace opdock::testing {
namespace {

constexpr char kSource[] =
    R"cc(#include <opdock/plugin.h>
         extern "C" opdock_status opdock_noop_plan(const opdock_call*, const opdock_value*,
                                                   uint32_t, opdock_plan*) {
           return OPDOCK_OK;
         }
         extern "C" opdock_status opdock_noop_run(const opdock_call*, const opdock_value*, uint32_t,
                                                  opdock_value*, uint32_t) {
           return OPDOCK_OK;
         }
    )cc";

class Machine : public BuildFixture {
 protected:
  void SetUp() override {
    if (!use_real_tools()) GTEST_SKIP() << "found no meson or no ninja";
    write("source/noop.cc", kSource);
  }

  // Returns the reasons of a build in a child process after `prepare` has run there; "good" if the
  // build succeeds.
  std::string reasons_after(const std::function<bool()>& prepare) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
    const pid_t child = fork();
    if (child == 0) {
      if (!prepare()) _exit(3);
      std::vector<Reason> why;
      const std::unique_ptr<Cache> own = folder_.open(&why);
      const BuildResult result = build(own.get());
      reasons.insert(reasons.end(), why.begin(), why.end());
      const std::string text = result.entry != nullptr ? "good" : text_of_reasons();
      _exit(::write(ends[1], text.data(), text.size()) < 0 ? 4 : 0);
    }
    close(ends[1]);
    std::string told;
    char buffer[4096];
    for (ssize_t count; (count = ::read(ends[0], buffer, sizeof buffer)) > 0;)
      told.append(buffer, static_cast<size_t>(count));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(orphans(), std::vector<std::string>());
    return told;
  }
  static bool limit(decltype(RLIMIT_FSIZE) resource, rlim_t value) {
    const rlimit most{value, value};
    return setrlimit(resource, &most) == 0;
  }
  // Gives the calling process its own mount namespace.
  static bool unshare_mounts() {
    return unshare(CLONE_NEWNS) == 0 && mount("", "/", "", MS_REC | MS_PRIVATE, "") == 0;
  }
  static bool can_mount() {
    const pid_t child = fork();
    if (child == 0) _exit(unshare_mounts() ? 0 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    return status == 0;
  }

  CacheFolder folder_;
};

TEST_F(Machine, WithoutLimitsBuilds) {
  EXPECT_EQ(reasons_after([] { return true; }), "good");
}

class FileSizes : public Machine, public ::testing::WithParamInterface<rlim_t> {};

TEST_P(FileSizes, AreALimitThatIsNamed) {
  const std::string told = reasons_after([] { return limit(RLIMIT_FSIZE, GetParam()); });
  EXPECT_TRUE(told.find("File too large") != told.npos || told.find("ulimit -f") != told.npos)
      << told;
  EXPECT_TRUE(told.starts_with("build-limit: ") || told.starts_with("cache-write: ")) << told;
}

// From the first file that is copied to the linker's output.
INSTANTIATE_TEST_SUITE_P(Bytes, FileSizes,
                         ::testing::Values(0, 100, 1000, 4000, 8000, 16000, 32000));

TEST_F(Machine, WithASmallStackIsNamed) {
  int named = 0;
  for (const rlim_t bytes : {64 << 10, 256 << 10}) {
    const std::string told = reasons_after([&] { return limit(RLIMIT_STACK, bytes); });
    if (told == "good") continue;
    ++named;
    EXPECT_TRUE(told.starts_with("build-limit: ")) << told;
    EXPECT_NE(told.find("ulimit -s"), told.npos) << told;
  }
  EXPECT_GT(named, 0) << "no compiler was short of a stack";
}

TEST_F(Machine, WithoutDevNullIsNamed) {
  if (!can_mount()) GTEST_SKIP() << "an empty /dev takes the right to mount";
  const std::string told = reasons_after(
      [] { return unshare_mounts() && mount("none", "/dev", "tmpfs", 0, "size=64k") == 0; });
  EXPECT_TRUE(told.starts_with("build-dev-null: ")) << told;
}

class Disks : public Machine, public ::testing::WithParamInterface<const char*> {};

TEST_P(Disks, ThatAreFullAreNamed) {
  if (!can_mount()) GTEST_SKIP() << "a small disk takes the right to mount";
  std::filesystem::create_directories(folder_.path("cache"));
  const std::string told = reasons_after([&] {
    return unshare_mounts() &&
           mount("none", folder_.path("cache").c_str(), "tmpfs", 0, GetParam()) == 0;
  });
  EXPECT_TRUE(told.starts_with("build-disk-full: ") || told.starts_with("cache-write: ")) << told;
  // GCC does not say why it could not close a file of arguments that it has written.
  EXPECT_TRUE(told.find("No space left on device") != told.npos ||
              told.find(" files left") != told.npos ||
              told.find("could not close temporary response file") != told.npos)
      << told;
}

class ScriptedMachine : public Machine {
 protected:
  void SetUp() override {}
};

// On a full disk, fatbinary prints only that it could not open its output file.
TEST_F(ScriptedMachine, WithAFullDiskIsNamedWhateverTheCompilerSays) {
  if (!can_mount()) GTEST_SKIP() << "a small disk takes the right to mount";
  tool("ninja",
       "cat /dev/zero > \"$2/full\" 2> /dev/null\n"
       "echo 'fatbinary fatal   : Could not open output file x'; exit 1");
  std::filesystem::create_directories(folder_.path("cache"));
  const std::string told = reasons_after([&] {
    return unshare_mounts() &&
           mount("none", folder_.path("cache").c_str(), "tmpfs", 0, "size=1m,mode=700") == 0;
  });
  EXPECT_TRUE(told.starts_with("build-disk-full: ")) << told;
}

INSTANTIATE_TEST_SUITE_P(OfKiB, Disks,
                         ::testing::Values("size=16k,mode=700", "size=64k,mode=700",
                                           "size=160k,mode=700", "size=320k,mode=700",
                                           "nr_inodes=8,mode=700", "nr_inodes=10,mode=700",
                                           "nr_inodes=12,mode=700", "nr_inodes=40,mode=700"));

}  // namespace
}  // namespace opdock::testing
