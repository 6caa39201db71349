// Tests which architectures a build is asked for.
// SPDX-License-Identifier: Apache-2.0
#include "chain/build_archs.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace opdock {
namespace {

class Decide : public testing::Test {
 protected:
  Decide() {
    unsetenv("TORCH_CUDA_ARCH_LIST");
    unsetenv("PYTORCH_ROCM_ARCH");
    manifest_.ops.resize(2);
    manifest_.ops[0].devices = {"cpu"};
    manifest_.ops[1].devices = {"cuda", "rocm"};
  }
  ~Decide() override {
    unsetenv("TORCH_CUDA_ARCH_LIST");
    unsetenv("PYTORCH_ROCM_ARCH");
  }

  // Returns "CUDA | ROCm", or "refused".
  std::string decide(const char* cuda = "", const char* hip = "", bool ahead = false) {
    BuildOptions& options = options_ = BuildOptions();
    options.cuda_archs = cuda;
    options.hip_archs = hip;
    reasons_.clear();
    if (!decide_archs(manifest_, settings_, machine_, ahead, &options, &reasons_)) return "refused";
    return options.cuda_archs + " | " + options.hip_archs;
  }

  void add_gpu(Backend backend, const char* arch, int major, int minor) {
    Gpu gpu{};
    gpu.backend = backend;
    gpu.arch = arch;
    gpu.major = major;
    gpu.minor = minor;
    machine_.gpus.push_back(gpu);
  }

  Manifest manifest_;
  BuildOptions options_;  // from the last decision
  ArchSettings settings_;
  MachineFacts machine_;
  std::vector<Reason> reasons_;
};

TEST_F(Decide, TheOrder) {
  EXPECT_EQ(decide(), " | ");
  EXPECT_EQ(decide("", "", true), "default | ");
  add_gpu(Backend::kCuda, "sm_90", 9, 0);
  add_gpu(Backend::kRocm, "gfx90a:sramecc+:xnack-", 9, 0);
  EXPECT_EQ(decide(), "9.0 | gfx90a");
  EXPECT_EQ(decide("", "", true), "9.0 | gfx90a");
  settings_ = {"8.0;9.0", "config.toml:1", "gfx90a;gfx942", "config.toml:2"};
  EXPECT_EQ(decide(), "8.0;9.0 | gfx90a;gfx942");
  setenv("TORCH_CUDA_ARCH_LIST", "9.0a", 1);
  setenv("PYTORCH_ROCM_ARCH", "gfx90a:xnack-", 1);
  EXPECT_EQ(decide(), "9.0a | gfx90a:xnack-");
  EXPECT_TRUE(reasons_.empty());
  EXPECT_EQ(decide("10.0,9.0", "gfx1030 gfx90a"), "9.0;10.0 | gfx1030;gfx90a");
}

TEST_F(Decide, FormulasNeedNoImages) {
  for (OpDecl& op : manifest_.ops) op.formula = "x + 1";
  EXPECT_EQ(decide("", "", true), " | ");
  EXPECT_EQ(decide("default", "gfx90a", true), "default | gfx90a");
  add_gpu(Backend::kCuda, "sm_90", 9, 0);
  EXPECT_EQ(decide("", "", true), "9.0 | ");
  EXPECT_EQ(decide(), " | ");
  manifest_.sources = {"more.cc"};
  EXPECT_EQ(decide(), "9.0 | ");
}

TEST_F(Decide, WhoseGpusTheResultIsFor) {
  decide("", "", true);
  EXPECT_FALSE(options_.must_run_here);
  EXPECT_EQ(options_.gpu_archs, "");
  add_gpu(Backend::kCuda, "sm_90", 9, 0);
  decide("", "", true);
  EXPECT_TRUE(options_.must_run_here);
  EXPECT_EQ(options_.gpu_archs + " of " + options_.arch_origin, "9.0 of the visible GPUs");
  decide("native", "", true);
  EXPECT_TRUE(options_.must_run_here);
  EXPECT_EQ(options_.gpu_archs + " of " + options_.arch_origin, "9.0 of --archs");
  decide("8.0", "", true);
  EXPECT_FALSE(options_.must_run_here) << "it may be for another machine";
  EXPECT_EQ(options_.gpu_archs + " of " + options_.arch_origin, " of --archs");
  decide();  // a first use, whose caller knows
  EXPECT_FALSE(options_.must_run_here);
  EXPECT_EQ(options_.gpu_archs, "9.0");
  machine_.gpus.clear();
  add_gpu(Backend::kRocm, "gfx90a", 9, 0);
  decide("", "", true);
  EXPECT_TRUE(options_.must_run_here);
  EXPECT_EQ(options_.hip_origin, "the visible GPUs");
  decide("", "gfx90a", true);
  EXPECT_FALSE(options_.must_run_here);
  decide("", "native", true);
  EXPECT_TRUE(options_.must_run_here);
}

TEST_F(Decide, APresetListForAnotherGpuIsTakenWithANotice) {
  add_gpu(Backend::kCuda, "sm_80", 8, 0);
  setenv("TORCH_CUDA_ARCH_LIST", "9.0a", 1);
  EXPECT_EQ(decide(), "9.0a | ");
  ASSERT_EQ(reasons_.size(), 1u);
  EXPECT_EQ(reasons_[0].code, Code::kArchUncovered);
}

TEST_F(Decide, OnlyForDevicesThatThePluginHas) {
  setenv("TORCH_CUDA_ARCH_LIST", "nonsense", 1);
  manifest_.ops.pop_back();
  EXPECT_EQ(decide("8.0", "gfx90a", true), " | ");
  EXPECT_TRUE(reasons_.empty());
}

TEST_F(Decide, WhatCannotBeReadIsRefused) {
  EXPECT_EQ(decide("80"), "refused");
  EXPECT_EQ(reasons_.at(0).code, Code::kArchListInvalid);
  EXPECT_EQ(decide("", "90a"), "refused");
  EXPECT_NE(reasons_.at(0).found.find("--hip-archs"), std::string::npos);
  setenv("TORCH_CUDA_ARCH_LIST", "native", 1);
  EXPECT_EQ(decide(), "refused");
  EXPECT_EQ(reasons_.at(0).code, Code::kBuildArch);
  settings_.cuda = "8,0";
  settings_.cuda_place = "/etc/opdock/config.toml:3";
  unsetenv("TORCH_CUDA_ARCH_LIST");
  EXPECT_EQ(decide(), "refused");
  EXPECT_NE(reasons_.at(0).found.find("/etc/opdock/config.toml:3"), std::string::npos);
}

}  // namespace
}  // namespace opdock
