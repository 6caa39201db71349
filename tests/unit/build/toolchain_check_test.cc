// Tests what prevents a build before it starts, and what is only a warning.
// SPDX-License-Identifier: Apache-2.0
#include "build/toolchain_check.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace opdock {
namespace {

class Check : public testing::Test {
 protected:
  Check() {
    manifest_.sources = {"op.cc", "op.cu"};
    options_.cuda_archs = "9.0";
    facts_.compiler = {"g++", Version{12, 2}};
    facts_.nvcc.version = Version{13, 0, 88};
    facts_.nvcc.archs.name = "nvcc 13.0";
    for (const int number : {75, 80, 90, 120}) {
      CudaTarget target;
      target.number = number;
      facts_.nvcc.archs.targets.push_back(target);
    }
    HostLimits limits;
    limits.gcc = 15;
    limits.source = "host_config.h";
    facts_.nvcc.limits = limits;
  }

  // Returns "against CODE;…warned CODE;…", or "" for nothing.
  std::string judge() {
    result_ = check_toolchain(manifest_, options_, facts_);
    std::string text;
    for (const Reason& reason : result_.errors)
      text += "against " + std::string(info(reason.code).name) + ";";
    for (const Reason& reason : result_.warnings)
      text += "warned " + std::string(info(reason.code).name) + ";";
    for (const auto* list : {&result_.errors, &result_.warnings})
      for (const Reason& reason : *list)
        EXPECT_FALSE(reason.found.empty() || reason.wanted.empty() || reason.advice.empty());
    return text;
  }

  void driver(Version cuda) { facts_.driver.cuda = std::move(cuda); }

  Manifest manifest_;
  BuildOptions options_;
  ToolchainFacts facts_;
  BuildCheck result_;
};

TEST_F(Check, NothingSpeaksAgainstWhatGoesTogether) {
  EXPECT_EQ(judge(), "");
  driver({13, 0});
  EXPECT_EQ(judge(), "");
  options_.cuda_archs = "";  // nvcc's default architectures
  EXPECT_EQ(judge(), "");
}

TEST_F(Check, APluginWithoutDeviceCodeIsNotJudged) {
  manifest_.sources = {"op.cc"};
  facts_.nvcc.version = Version{10, 2};
  options_.cuda_archs = "99.0";
  EXPECT_EQ(judge(), "");
}

TEST_F(Check, LibrariesThatAreNotThere) {
  manifest_.sources = {"op.cc"};
  facts_.no_packages = {{"foo", "No package 'foo' found"}, {"bar", "pkg-config ended"}};
  facts_.no_libraries = {"baz"};
  ASSERT_EQ(judge(), "against build-no-library;against build-no-library;against build-no-library;");
  EXPECT_EQ(result_.errors[0].found, "no library foo by pkg-config: No package 'foo' found");
  EXPECT_EQ(result_.errors[2].wanted, "libbaz.so or libbaz.a where the linker looks");
}

TEST_F(Check, ArchitecturesBelowTheLeast) {
  manifest_.build.least_cuda = 90;
  options_.cuda_archs = "7.5;8.0";
  EXPECT_EQ(judge(), "against arch-below-least;");
  options_.cuda_archs = "8.6;9.0";
  EXPECT_EQ(judge(), "") << "8.6 is not compiled for, so nobody need know it";
  facts_.nvcc.archs.targets.clear();
  options_.cuda_archs = "7.5";
  EXPECT_EQ(judge(), "against arch-below-least;") << "the list is enough to tell";
  manifest_.sources = {"op.cc"};
  EXPECT_EQ(judge(), "") << "there is no device code";
}

TEST_F(Check, ArchitecturesThatTheCompilerDoesNotKnow) {
  options_.cuda_archs = "8.6;9.0;10.0+PTX";
  options_.arch_origin = "TORCH_CUDA_ARCH_LIST";
  EXPECT_EQ(judge(), "against build-arch;");
  EXPECT_NE(result_.errors[0].found.find("8.6, 10.0+PTX in TORCH_CUDA_ARCH_LIST"),
            std::string::npos)
      << result_.errors[0].found;
}

TEST_F(Check, AGpuNewerThanTheCompiler) {
  options_.cuda_archs = "13.0";
  options_.gpu_archs = "13.0";
  options_.must_run_here = true;
  driver({13, 0});
  EXPECT_EQ(judge(), "warned arch-ptx;");
  EXPECT_NE(result_.warnings[0].advice.find("12.0+PTX"), std::string::npos);
  // The result has only PTX, which needs a driver of the toolkit's version.
  facts_.nvcc.version = Version{13, 1};
  EXPECT_EQ(judge(), "against toolkit-driver;warned arch-ptx;");
  options_.must_run_here = false;
  EXPECT_EQ(judge(), "warned arch-ptx;warned toolkit-driver;");
}

TEST_F(Check, ToolkitAgainstDriver) {
  driver({12, 4});
  EXPECT_EQ(judge(), "warned toolkit-driver;") << "it may be for another machine";
  options_.must_run_here = true;
  EXPECT_EQ(judge(), "against toolkit-driver;");
  facts_.nvcc.version = Version{12, 9};
  EXPECT_EQ(judge(), "") << "minors do not matter to a cubin";
  options_.cuda_archs = "9.0+PTX";
  EXPECT_EQ(judge(), "warned toolkit-driver;") << "but to PTX, which the GPU here does not need";
}

TEST_F(Check, HostCompilerAgainstToolkit) {
  facts_.compiler.version = Version{16, 1};
  EXPECT_EQ(judge(), "against build-host-compiler;");
  facts_.compiler.version = Version();
  EXPECT_EQ(judge(), "warned tool-unknown;");
  facts_.compiler = {"clang++", Version{99}};
  EXPECT_EQ(judge(), "") << "of clang nothing is known";
  facts_.compiler = {};
  EXPECT_EQ(judge(), "");
}

TEST_F(Check, ToolkitTooOldOrOfUnknownVersion) {
  facts_.nvcc.version = Version{11, 8};
  EXPECT_EQ(judge(), "against tool-too-old;");
  EXPECT_NE(result_.errors[0].wanted.find("C++20"), std::string::npos);
  facts_.nvcc.version = Version{10, 2};
  EXPECT_EQ(judge(), "against tool-too-old;");
  facts_.nvcc = {};
  EXPECT_EQ(judge(), "warned tool-unknown;");
}

TEST_F(Check, ToolkitAgainstTorchOnlyWhereItIsLinked) {
  facts_.torch = {Version{2, 9}, Version{12, 8}};
  EXPECT_EQ(judge(), "");
  manifest_.libraries = {{"cudart", ">=12"}};
  EXPECT_EQ(judge(), "against toolkit-torch;");
  manifest_.libraries = {{"cudart", ">=12"}, {"torch", ">=2.9"}};
  EXPECT_EQ(judge(), "against toolkit-torch;");
  EXPECT_NE(result_.errors[0].wanted.find("libtorch"), std::string::npos);
  facts_.torch.cuda = Version{13, 0};
  EXPECT_EQ(judge(), "");
  facts_.torch.cuda.reset();
  EXPECT_EQ(judge(), "against toolkit-torch;");
}

class CheckNvrtc : public Check {
 protected:
  CheckNvrtc() {
    manifest_.sources = {"op.cc"};
    manifest_.device.emplace();
    facts_ = {};
    facts_.nvrtcs = {{Version{12, 9}, {80, 90, 120}}, {Version{13, 0}, {80, 90, 110, 120}}};
  }
};

TEST_F(CheckNvrtc, WhatOneOfThemKnowsIsEnough) {
  options_.cuda_archs = "9.0a;11.0";
  EXPECT_EQ(judge(), "");
  options_.cuda_archs = "9.0;12.1;99.0";
  EXPECT_EQ(judge(), "against build-arch;");
  EXPECT_NE(result_.errors[0].found.find("12.1, 99.0"), std::string::npos);
  options_.gpu_archs = "12.1;99.0";
  EXPECT_EQ(judge(), "warned arch-ptx;warned arch-ptx;");
}

TEST_F(CheckNvrtc, AnOldDriverIsToldForTheyCanBeMadeAnew) {
  options_.must_run_here = true;
  driver({12, 4});
  options_.cuda_archs = "9.0";
  EXPECT_EQ(judge(), "") << "the oldest that knows it makes it";
  options_.cuda_archs = "9.0;11.0";
  EXPECT_EQ(judge(), "warned toolkit-driver;");
}

TEST_F(CheckNvrtc, WithoutAnySourceAloneIsPacked) {
  facts_.nvrtcs.clear();
  EXPECT_EQ(judge(), "warned jit-no-compiler;");
  options_.cuda_archs = "";  // no images are requested
  EXPECT_EQ(judge(), "");
}

class CheckHip : public Check {
 protected:
  CheckHip() {
    manifest_.sources = {"op.cc", "op.hip"};
    options_.cuda_archs = "";
    options_.hip_archs = "gfx90a;gfx999;gfx998";
    facts_ = {};
    facts_.hipcc = Version{5, 2};
  }
};

TEST_F(CheckHip, UnknownProcessorsAreNamedTogether) {
  EXPECT_EQ(judge(), "");
  facts_.unknown_hip = {"gfx999", "gfx998"};
  options_.hip_origin = "PYTORCH_ROCM_ARCH";
  EXPECT_EQ(judge(), "against build-arch;");
  EXPECT_NE(result_.errors[0].found.find("gfx999, gfx998 in PYTORCH_ROCM_ARCH"), std::string::npos);
}

TEST_F(CheckHip, LibrariesOfAnotherRelease) {
  facts_.rocm = Version{6, 1};
  EXPECT_EQ(judge(), "warned rocm-runtime;");
  options_.must_run_here = true;
  EXPECT_EQ(judge(), "against rocm-runtime;");
}

}  // namespace
}  // namespace opdock
