// Tests a GPU that is newer than every compiler here, and a later toolkit that knows it. Runs in
// child processes, because a process looks for GPUs only once.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "chain_fixture.h"
#include "jit/nvrtc_files.h"
#include "opdock/compile.h"
#include "support/soft_child.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;

// Prints the contents of $TOP/nvcc.version and $TOP/nvcc.archs, and records that it was asked.
constexpr char kNvcc[] = R"sh(echo asked >> $TOP/asked
read version < $TOP/nvcc.version; read archs < $TOP/nvcc.archs
case "$*" in
*--version*) echo "Cuda compilation tools, release $version, V$version.88" ;;
*--help*) echo "--gpu-code <arch>"; echo "Allowed values: $archs." ;;
*--dryrun*) echo "#$ TOP=$TOP/toolkit" ;;
esac)sh";

size_t count_lines(const std::string& path) {
  std::ifstream file(path);
  size_t count = 0;
  for (std::string line; std::getline(file, line);) ++count;
  return count;
}

class NewToolkit : public ChainFixture {
 protected:
  NewToolkit() {
    const std::string folder = add_source("good");
    replace("plugins/good/plugin.toml", "\"code.c\"", "\"code.c\", \"code.cu\"");
    replace("plugins/good/plugin.toml", "[\"cpu\"]", "[\"cpu\", \"cuda\"]");
    top_.write("plugins/good/code.cu", "int code;\n");
    fs::create_directories(path("toolkit/bin"));
    for (const char* name : {"nvcc", "ptxas"}) top_.write(std::string("toolkit/bin/") + name, "13");
    nvcc("13.0", "'sm_90','sm_120'");
    setenv("CUDACXX", path("bin/nvcc").c_str(), 1);
  }
  ~NewToolkit() override { unsetenv("CUDACXX"); }

  void replace(const std::string& name, const std::string& from, const std::string& to) {
    std::string text;
    std::getline(std::ifstream(path(name)), text, '\0');
    ASSERT_NE(text.find(from), text.npos);
    top_.write(name, text.replace(text.find(from), from.size(), to));
  }
  // The script itself stays unchanged; the program that it would call, in the toolkit's folder,
  // changes.
  void nvcc(const std::string& version, const std::string& archs) {
    top_.write("nvcc.version", version + "\n");
    top_.write("nvcc.archs", archs + "\n");
    tool("nvcc", kNvcc);
    top_.write("toolkit/bin/ptxas", version);
  }
  // Makes the images with opdock-pack's NVRTC instead of nvcc.
  void use_device_source() {
    replace("plugins/good/plugin.toml", ", \"code.cu\"", "");
    replace(
        "plugins/good/plugin.toml", "flags = [\"thread-safe\"]",
        "flags = [\"thread-safe\"]\n[device]\nsources = [\"code.cuh\"]\nkernels = [\"f<int>\"]");
    top_.write("plugins/good/code.cuh", "template <class T> __global__ void f() {}\n");
  }
  size_t asked() const { return count_lines(path("asked")); }
  // Waits long enough for a memo: none is made of files changed less than two seconds before.
  static void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(2300)); }

  // Runs `body` in a child process that has this GPU.
  void in_child(const std::function<void()>& body) {
    soft_child::run([&] {
      setenv("OPDOCK_SOFTGPU", gpu.c_str(), 1);
      setenv("LD_LIBRARY_PATH", SOFTGPU_FOLDER, 1);
      unsetenv("CUDA_VISIBLE_DEVICES");
      soft_child::load_cuda(SOFTGPU_FOLDER);
      body();
    });
  }

  std::string gpu = R"({"cuda": 13000, "gpus": [{"arch": "sm_130"}]})";

  // Uses the op on the CPU and returns the report of its build step.
  Json use(Program* program = nullptr) {
    const RuntimePtr runtime = this->runtime(program);
    const Outcome done = resolve(runtime.get(), "good");
    EXPECT_EQ(done.status, OPDOCK_OK) << done.text;
    const Json told = step(explain(runtime.get(), "good"), "build");
    EXPECT_EQ(told.at("outcome"), "used");
    return told;
  }
  static bool has_code(const Json& step, const std::string& code) {
    for (const Json& reason : step.at("reasons"))
      if (reason.at("code") == code) return true;
    return false;
  }
  // Uses the op in a child that has to build it with PTX.
  void build_with_ptx() {
    in_child([&] {
      const Json told = use();
      EXPECT_TRUE(has_code(told, "arch-ptx")) << told.dump(1);
      EXPECT_EQ(builds(), 1u);
    });
  }
  void expect_kept() {
    const size_t before = asked();
    in_child([&] {
      const Json told = use();
      EXPECT_TRUE(told.at("changed").empty()) << told.dump(1);
      EXPECT_NE(told.at("text").get<std::string>().find("in the cache"), std::string::npos);
    });
    EXPECT_EQ(asked(), before) << "nothing is to be started";
  }
};

TEST_F(NewToolkit, OneThatKnowsTheGpuBuildsAnewAndIsNamed) {
  build_with_ptx();
  const size_t before = asked();
  expect_kept();
  EXPECT_EQ(builds(), 1u);

  nvcc("14.0", "'sm_90','sm_130'");
  in_child([&] {
    const RuntimePtr runtime = this->runtime();
    const Json told = step(explain(runtime.get(), "good"), "build");
    ASSERT_EQ(told.at("changed").size(), 1u) << told.dump(1);
    EXPECT_EQ(told["changed"][0].get<std::string>().find("toolkit: "), 0u) << told.dump(1);
  });
  EXPECT_EQ(asked(), before) << "explaining starts nothing";
  EXPECT_EQ(builds(), 1u);
  in_child([&] {
    const Json told = use();
    ASSERT_EQ(told.at("changed").size(), 1u) << told.dump(1);
    const std::string changed = told["changed"][0];
    for (const char* part : {"toolkit: ", "found nvcc 14.0.88", "was nvcc 13.0.88"})
      EXPECT_NE(changed.find(part), std::string::npos) << changed;
    EXPECT_FALSE(has_code(told, "arch-ptx")) << told.dump(1);
  });
  EXPECT_EQ(builds(), 2u);
  expect_kept();
  // With the old toolkit again, its entry is still in the cache, but the entry that knows the GPU
  // is preferred.
  nvcc("13.0", "'sm_90','sm_120'");
  expect_kept();
  EXPECT_EQ(builds(), 2u);
}

// As when machines with different toolkits share a cache: the newest entry need not be the best
// one.
TEST_F(NewToolkit, WhatKnowsTheGpuIsPreferredToPtxThatWasBuiltLater) {
  nvcc("14.0", "'sm_90','sm_130'");
  in_child([&] { use(); });
  nvcc("13.0", "'sm_90','sm_120'");
  // an entry's time has a resolution of one second
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  in_child([&] {
    const RuntimePtr runtime = this->runtime();
    char* text = nullptr;
    ASSERT_EQ(
        opdock_build_json(runtime.get(), path("plugins/good").c_str(), nullptr, &text, nullptr, 0),
        OPDOCK_OK);
    const Json report = Json::parse(text);
    opdock_free(text);
    EXPECT_EQ(report.at("outcome"), "built") << report.dump(1);
    EXPECT_EQ(report.at("warnings").size(), 1u) << report.dump(1);
  });
  EXPECT_EQ(builds(), 2u);
  expect_kept();
  nvcc("14.0", "'sm_90','sm_130'");
  expect_kept();
  EXPECT_EQ(builds(), 2u);
}

TEST_F(NewToolkit, BehindAScriptThatStaysAsItIs) {
  build_with_ptx();
  top_.write("nvcc.version", "14.0\n");
  top_.write("nvcc.archs", "'sm_90','sm_130'\n");
  top_.write("toolkit/bin/ptxas", "14");
  in_child([&] { EXPECT_EQ(use().at("changed").size(), 1u); });
  EXPECT_EQ(builds(), 2u);
}

TEST_F(NewToolkit, OneThatDoesNotKnowTheGpuEitherIsAskedOnce) {
  build_with_ptx();
  nvcc("13.1", "'sm_90','sm_120','sm_121'");
  settle();
  const size_t before = asked();
  in_child([&] { EXPECT_TRUE(use().at("changed").empty()); });
  EXPECT_GT(asked(), before);
  expect_kept();
  EXPECT_EQ(builds(), 1u);
  nvcc("14.0", "'sm_90','sm_130'");
  in_child([&] { use(); });
  EXPECT_EQ(builds(), 2u);
}

TEST_F(NewToolkit, OneThatFailsLeavesThePtxInUse) {
  build_with_ptx();
  nvcc("14.0", "'sm_90','sm_130'");
  tool("ninja", "echo build >> $TOP/builds; echo 'code.cu:1:1: error: no'; exit 1");
  settle();
  in_child([&] {
    const Json told = use();
    EXPECT_TRUE(has_code(told, "build-failed")) << told.dump(1);
    EXPECT_EQ(told.at("changed").size(), 1u) << told.dump(1);
    EXPECT_NE(told.at("text").get<std::string>().find("in the cache"), std::string::npos);
  });
  EXPECT_EQ(builds(), 2u);
  expect_kept();  // not tried again until a compiler changes
  EXPECT_EQ(builds(), 2u);
}

TEST_F(NewToolkit, MayNotBeUsedWhereBuildingIsSwitchedOff) {
  build_with_ptx();
  nvcc("14.0", "'sm_90','sm_130'");
  const size_t before = asked();
  Program never;
  never.build = "never";
  in_child([&] { EXPECT_TRUE(use(&never).at("changed").empty()); });
  EXPECT_EQ(asked(), before);
  EXPECT_EQ(builds(), 1u);
}

TEST_F(NewToolkit, NoneAnyMoreLeavesThePtxInUse) {
  build_with_ptx();
  remove_tool("nvcc");
  expect_kept();
  EXPECT_EQ(builds(), 1u);
}

// A newer NVRTC has the same effect for images that opdock-pack made with NVRTC; nvcc takes no part
// in them.
TEST_F(NewToolkit, ANewerNvrtc) {
  if (!find_nvrtc_files({}, current_environment(), nullptr).empty())
    GTEST_SKIP() << "the system's own NVRTC may know the GPU";
  gpu = R"({"cuda": 13000, "gpus": [{"arch": "sm_110"}]})";
  use_device_source();
  fs::create_directory(path("nvrtc"));
  fs::copy_file(FAKE_NVRTC_12, path("nvrtc/libnvrtc.so.12"));
  const auto use_it = [&] {
    char error[256] = "";
    EXPECT_EQ(opdock_add_compiler_folder(path("nvrtc").c_str(), error, sizeof error), OPDOCK_OK)
        << error;
    return use();
  };
  in_child([&] {
    const Json told = use_it();
    EXPECT_TRUE(has_code(told, "arch-ptx")) << told.dump(1);
  });
  settle();
  in_child([&] { EXPECT_TRUE(use_it().at("changed").empty()); });  // makes a memo of the answer
  fs::copy_file(FAKE_NVRTC_13, path("nvrtc/libnvrtc.so.13"));
  in_child([&] {
    const Json told = use_it();
    ASSERT_EQ(told.at("changed").size(), 1u) << told.dump(1);
    EXPECT_NE(told["changed"][0].get<std::string>().find("NVRTC 13.0"), std::string::npos);
    EXPECT_FALSE(has_code(told, "arch-ptx")) << told.dump(1);
  });
  EXPECT_EQ(builds(), 2u);
  in_child([&] { EXPECT_TRUE(use_it().at("changed").empty()); });
  EXPECT_EQ(builds(), 2u);
}

// An NVRTC that only the loader finds, such as a distribution's.
TEST_F(NewToolkit, ANewerNvrtcOnTheLoadersPath) {
  if (!find_nvrtc_files({}, current_environment(), nullptr).empty())
    GTEST_SKIP() << "the system's own NVRTC may know the GPU";
  gpu = R"({"cuda": 13000, "gpus": [{"arch": "sm_110"}]})";
  use_device_source();
  const auto use_it = [&] {
    setenv("LD_LIBRARY_PATH", (path("nvrtc") + ":" + SOFTGPU_FOLDER).c_str(), 1);
    return use();
  };
  fs::create_directory(path("nvrtc"));
  fs::copy_file(FAKE_NVRTC_12, path("nvrtc/libnvrtc.so.12"));
  in_child([&] { EXPECT_TRUE(has_code(use_it(), "arch-ptx")); });
  settle();
  in_child([&] { EXPECT_TRUE(use_it().at("changed").empty()); });
  fs::copy_file(FAKE_NVRTC_13, path("nvrtc/libnvrtc.so.13"));
  in_child([&] {
    const Json told = use_it();
    EXPECT_EQ(told.at("changed").size(), 1u) << told.dump(1);
    EXPECT_FALSE(has_code(told, "arch-ptx")) << told.dump(1);
  });
  EXPECT_EQ(builds(), 2u);
}

}  // namespace
}  // namespace opdock::testing
