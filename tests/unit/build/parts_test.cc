// Tests the builder's parts: finding Opdock's files, identifying the compilers, and running a
// program.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/installed.h"
#include "build/process.h"
#include "build/project.h"
#include "build/tools.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

class Parts : public ::testing::Test {
 protected:
  Parts() {
    std::string pattern = ::testing::TempDir() + "opdock-parts-XXXXXX";
    top = mkdtemp(pattern.data());
  }
  ~Parts() override {
    std::error_code error;
    fs::remove_all(top, error);
  }
  void write(const std::string& name, const std::string& text, mode_t mode = 0600) {
    fs::create_directories(fs::path(top + "/" + name).parent_path());
    std::ofstream(top + "/" + name, std::ios::binary) << text;
    chmod((top + "/" + name).c_str(), mode);
  }
  std::string top;
};

TEST_F(Parts, InstalledFilesAreFoundFromTheLibrary) {
  for (const char* library : {"lib", "lib/x86_64-linux-gnu"}) {
    for (const char* headers : {"include", "share/opdock/include"}) {
      fs::remove_all(top + "/p");
      fs::create_directories(top + "/p/" + library);
      write("p/" + std::string(headers) + "/opdock/plugin.h", "");
      write("p/share/opdock/device/opdock/device.cuh", "");
      write("p/share/opdock/plugin-build/meson.build", "");
      write("p/share/opdock/plugins-src/axpy/plugin.toml", "");
      write("p/bin/opdock-pack", "", 0700);
      write("p/libexec/opdock/opdock-guard", "", 0700);
      const Installed found = find_installed(top + "/p/" + library);
      EXPECT_EQ(found.root, top + "/p");
      EXPECT_EQ(found.include, top + "/p/" + headers);
      EXPECT_EQ(found.device, top + "/p/share/opdock/device");
      EXPECT_EQ(found.plugin_build, top + "/p/share/opdock/plugin-build");
      EXPECT_EQ(found.plugin_sources, top + "/p/share/opdock/plugins-src");
      EXPECT_EQ(found.program("opdock-pack"), top + "/p/bin/opdock-pack");
      EXPECT_EQ(found.program("opdock-guard"), top + "/p/libexec/opdock/opdock-guard");
      EXPECT_EQ(found.program("absent"), "");
    }
  }
}

TEST_F(Parts, ProgramsAreIdentifiedByTheirBuildIdOrContents) {
  const std::string own = file_identity("/proc/self/exe");
  EXPECT_EQ(own.size(), 40u) << own;
  EXPECT_EQ(own.find_first_not_of("0123456789abcdef"), std::string::npos);
  write("script", "echo 1\n");
  const std::string first = file_identity(top + "/script");
  EXPECT_TRUE(first.starts_with("7:")) << first;
  write("script", "echo 2\n");
  EXPECT_NE(file_identity(top + "/script"), first);
  EXPECT_EQ(file_identity(top + "/absent"), "");
  EXPECT_EQ(file_identity("/proc/self/mem"), "") << "reading it fails";
  write("cut", std::string("\x7f"
                           "ELF\x02\x01\x01",
                           7));
  EXPECT_FALSE(file_identity(top + "/cut").empty());
}

TEST_F(Parts, TheEnvironmentIsCleanOfWhatChangesResults) {
  for (const char* name :
       {"CFLAGS", "CXXFLAGS", "LDFLAGS", "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "LANG",
        "LD_PRELOAD_X", "PYTHONPATH", "TORCH_CUDA_ARCH_LIST", "MAKEFLAGS"}) {
    setenv(name, "noise", 1);
  }
  BuildTools tools;
  tools.cpp = {"/opt/tool chain/c++"};
  tools.ninja = "/opt/ninja";
  bool path = false;
  for (const std::string& one : build_environment(tools, "/tmp/x")) {
    EXPECT_EQ(one.find("noise"), std::string::npos) << one;
    path |= one == "PATH=/opt/tool chain:/opt:/usr/local/bin:/usr/bin:/bin";
  }
  EXPECT_TRUE(path);
}

TEST(Jobs, AreAtLeastOneAndAtMostTheCores) {
  for (const bool cuda : {false, true}) {
    Languages languages;
    languages.cuda = cuda;
    EXPECT_GE(default_jobs(languages), 1);
    EXPECT_LE(default_jobs(languages), sysconf(_SC_NPROCESSORS_ONLN));
  }
}

class Process : public Parts {
 protected:
  // Runs `script`. Stores what it printed in *output and returns how it ended.
  ProcessEnd run(const std::string& script, std::string* output, double seconds = 20) {
    const char* guard = std::getenv("OPDOCK_TEST_GUARD");
    if (guard == nullptr) throw std::runtime_error("OPDOCK_TEST_GUARD is not set");
    ProcessJob job;
    job.arguments = {"/bin/sh", "-c", script};
    job.environment = {"PATH=/usr/bin:/bin", "GIVEN=value"};
    job.folder = top;
    job.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
    return run_and_read(guard, job, 1 << 20, output);
  }
};

TEST_F(Process, TellsHowItEnded) {
  std::string output;
  EXPECT_TRUE(run("exit 0", &output).ok());
  EXPECT_EQ(run("exit 7", &output).text(), "ended with status 7");
  const ProcessEnd killed = run("kill -TERM $$", &output);
  EXPECT_EQ(killed.kind, ProcessEnd::kSignal);
  EXPECT_EQ(killed.number, SIGTERM);
  EXPECT_EQ(run("sleep 60", &output, 0.2).kind, ProcessEnd::kTimeout);
}

TEST_F(Process, GetsItsFolderItsEnvironmentAndNoInput) {
  setenv("NOT_GIVEN", "1", 1);
  std::string output;
  ASSERT_TRUE(run("pwd; echo $GIVEN$NOT_GIVEN; cat; echo error >&2; trap", &output).ok());
  EXPECT_EQ(output, top + "\nvalue\nerror\n");
}

TEST_F(Process, InheritsNoDescriptors) {
  const int leaked = dup2(0, 77);  // not close-on-exec
  std::string output;
  ASSERT_TRUE(run("ls /proc/self/fd | tr '\\n' ' '", &output).ok());
  close(leaked);
  EXPECT_EQ(output, "0 1 2 3 ");  // descriptor 3 is ls reading the folder
}

TEST_F(Process, AllOfItsOutputIsRead) {
  std::string output;
  ASSERT_TRUE(run("i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done", &output).ok());
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 2000);
  EXPECT_TRUE(output.ends_with("line 1999\n"));
}

TEST_F(Process, ItsChildrenEndWithIt) {
  std::string output;
  const auto begin = Clock::now();
  ASSERT_TRUE(run("setsid sleep 71 & sleep 72 & echo $!", &output).ok());
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
  EXPECT_NE(kill(std::atoi(output.c_str()), 0), 0);
}

TEST_F(Process, AMissingGuardOrProgramIsTold) {
  ProcessJob job;
  job.arguments = {"/nowhere/program"};
  job.deadline = Clock::now() + std::chrono::seconds(5);
  EXPECT_EQ(run_process("/nowhere/guard", job).kind, ProcessEnd::kNotStarted);
  const ProcessEnd end = run_process(std::getenv("OPDOCK_TEST_GUARD"), job);
  EXPECT_EQ(end.kind, ProcessEnd::kNotStarted);
  EXPECT_EQ(end.number, ENOENT);
}

}  // namespace
}  // namespace opdock
