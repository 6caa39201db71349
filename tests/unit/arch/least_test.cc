// Tests the least architecture that a plugin supports, and where a toolkit is.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <tuple>

#include "arch/choose.h"
#include "arch/nvcc_toolkit.h"
#include "support/temporary_folder.h"

namespace opdock {
namespace {

const std::vector<int> kKnown = {75, 80, 86, 89, 90, 100, 103, 120};

Gpu gpu_of(int number) {
  Gpu gpu{};
  gpu.backend = Backend::kCuda;
  gpu.major = number / 10;
  gpu.minor = number % 10;
  gpu.arch = "sm_" + std::to_string(number);
  return gpu;
}

struct Chosen {
  std::string text = "refused";
  Reason reason{};
  size_t notices = 0;
};

Chosen choose(const std::string& list, int least, const std::vector<int>& gpus,
              const std::vector<int>& known) {
  CudaArchInputs inputs;
  inputs.sources = {{"--archs", list}};
  for (const int number : gpus) inputs.gpus.push_back(gpu_of(number));
  if (!known.empty()) inputs.compilers = {archs_of_nvrtc(Version{13, 0}, known)};
  inputs.least = least;
  Chosen out;
  const auto choice = choose_cuda_archs(inputs, &out.reason);
  if (choice) out.text = choice->text();
  if (choice) out.notices = choice->notices.size();
  return out;
}

TEST(LeastArch, NothingBelowItIsChosen) {
  const std::tuple<const char*, int, std::vector<int>, const char*> rows[] = {
      {"7.5+PTX;8.0;9.0a", 80, {}, "8.0;9.0a"},
      {"8.0", 80, {}, "8.0"},
      {"6.0;8.0", 80, {}, "8.0"},  // no compiler here knows 6.0, but none is asked for it
      {"all-major", 86, {}, "8.6;9.0;10.0;12.0+PTX"},
      {"all", 100, {}, "10.0;10.3;12.0+PTX"},
      {"default", 86, {}, "8.6+PTX;9.0;10.0;12.0+PTX"},
      {"", 86, {}, "8.6+PTX;9.0;10.0;12.0+PTX"},
      {"", 80, {75, 90}, "9.0"},
      {"native", 80, {75, 90}, "9.0+PTX"},
      {"", 80, {75}, "8.0+PTX;9.0;10.0;12.0+PTX"},  // as if there were no GPU
      {"all;7.5", 100, {}, "10.0;10.3;12.0+PTX"},
  };
  for (const auto& [list, least, gpus, wanted] : rows) {
    const Chosen chosen = choose(list, least, gpus, kKnown);
    EXPECT_EQ(chosen.text, wanted) << list << "\n" << to_text(chosen.reason);
    EXPECT_EQ(chosen.notices, 0u) << list << ": a GPU that is left out is meant to be";
  }
}

TEST(LeastArch, WhatLiesWhollyBelowItIsRefused) {
  for (const auto& known : {kKnown, std::vector<int>()}) {
    Chosen chosen = choose("7.5;7.0+PTX", 80, {}, known);
    EXPECT_EQ(chosen.text, "refused");
    EXPECT_EQ(chosen.reason.code, Code::kArchBelowLeast);
    EXPECT_EQ(chosen.reason.found, "--archs = \"7.5;7.0+PTX\"");
    EXPECT_EQ(chosen.reason.wanted, "8.0 or later, which plugin.toml's least-cuda-arch asks for");
    EXPECT_EQ(chosen.reason.advice, "ask for 8.0 or a later architecture");
    chosen = choose("native", 80, {75}, known);
    EXPECT_EQ(chosen.reason.code, Code::kArchBelowLeast);
    EXPECT_NE(chosen.reason.found.find("a GPU of 7.5"), std::string::npos) << chosen.reason.found;
  }
  // The compilers are too old for the plugin.
  for (const char* list : {"", "all", "default", "native", "12.0"}) {
    const Chosen chosen = choose(list, 120, {120}, {75, 80, 90});
    EXPECT_EQ(chosen.reason.code, Code::kBuildArch) << list;
    EXPECT_EQ(chosen.reason.advice, "use a toolkit that knows 12.0");
  }
}

TEST(LeastArch, TheRequestHoldsNothingBelowIt) {
  const std::tuple<const char*, std::vector<int>, const char*> rows[] = {
      {"7.5;9.0", {}, "9.0"}, {"all;7.5", {}, "all"}, {"all;native", {75}, "all"},
      {"", {75, 90}, "9.0"},  {"", {75}, ""},         {"default", {75}, "default"},
  };
  for (const auto& [list, numbers, wanted] : rows) {
    std::vector<Gpu> gpus;
    for (const int number : numbers) gpus.push_back(gpu_of(number));
    Reason reason{};
    const auto request = request_cuda_archs({{"--archs", list}}, gpus, 80, &reason);
    ASSERT_TRUE(request) << list << "\n" << to_text(reason);
    EXPECT_EQ(request->text, wanted) << list;
    EXPECT_EQ(request->gpu_archs.find("7.5"), std::string::npos) << request->gpu_archs;
    EXPECT_TRUE(request->notices.empty()) << list;
  }
  Reason reason{};
  EXPECT_FALSE(request_cuda_archs({{"--archs", "7.5"}}, {gpu_of(90)}, 80, &reason));
  EXPECT_EQ(reason.code, Code::kArchBelowLeast);
}

TEST(Toolkit, IsWhereItSays) {
  EXPECT_EQ(toolkit_of("#$ _HERE_=/a/bin\n#$ TOP=/a b/bin/..\n#$ X=1\n"), "/a b/bin/..");
  EXPECT_EQ(toolkit_of("#$ TOP=/a/bin/.."), "/a/bin/..");
  EXPECT_EQ(toolkit_of("TOP=/a\n"), "");
  const opdock_test::TemporaryFolder folder;
  const std::string top = folder.path().string();
  std::filesystem::create_directories(top + "/bin");
  EXPECT_TRUE(library_folders(top + "/bin/..").empty());
  std::filesystem::create_directories(top + "/lib64");
  std::filesystem::create_directories(top + "/lib");
  EXPECT_EQ(library_folders(top + "/bin/.."),
            (std::vector<std::string>{top + "/lib64", top + "/lib"}));
}

}  // namespace
}  // namespace opdock
