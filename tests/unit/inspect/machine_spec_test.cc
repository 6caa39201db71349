// Tests machines that are described instead of probed.
// SPDX-License-Identifier: Apache-2.0
#include "inspect/machine_spec.h"

#include <elf.h>
#include <gtest/gtest.h>

namespace opdock {
namespace {

MachineFacts here() {
  MachineFacts facts;
  facts.cpu_arch = "x86_64";
  facts.cpu_level = 4;
  facts.elf_machine = EM_X86_64;
  facts.symbol_versions = {{"GLIBC", {2, 36}}, {"GLIBCXX", {3, 4, 30}}, {"CXXABI", {1, 3, 13}}};
  facts.cuda_driver = Version{13, 0};
  facts.gpus.resize(1);
  facts.gpus[0].arch = "sm_90";
  return facts;
}

MachineFacts described(const MachineSpec& spec) {
  EXPECT_FALSE(check_spec(spec).has_value());
  return described_machine(spec, here());
}

TEST(MachineSpec, WithoutAnythingTheMachineIsThisOne) {
  const MachineFacts facts = described({});
  EXPECT_EQ(facts.gpus.size(), 1u);
  EXPECT_EQ(facts.cuda_driver->text(), "13.0");
}

TEST(MachineSpec, TakesGpusInTheirOrder) {
  const MachineFacts facts =
      described({.gpus = {"sm_100", "gfx90a:xnack+", "sm_90a", "gfx1030", "sm_87"}});
  ASSERT_EQ(facts.gpus.size(), 5u);
  EXPECT_EQ(facts.gpus[0].arch, "sm_100");
  EXPECT_EQ(facts.gpus[0].major, 10);
  EXPECT_EQ(facts.gpus[0].minor, 0);
  EXPECT_EQ(facts.gpus[0].index, 0);
  EXPECT_EQ(facts.gpus[1].arch, "gfx90a:sramecc+:xnack+");
  EXPECT_EQ(facts.gpus[1].backend, Backend::kRocm);
  EXPECT_EQ(facts.gpus[1].index, 0);
  EXPECT_EQ(facts.gpus[2].arch, "sm_90");
  EXPECT_EQ(facts.gpus[2].index, 1);
  EXPECT_EQ(facts.gpus[3].arch, "gfx1030");
  EXPECT_EQ(facts.gpus[3].index, 1);
  EXPECT_TRUE(facts.gpus[4].tegra);
  EXPECT_FALSE(facts.gpus[0].tegra);
  EXPECT_FALSE(facts.cuda_driver.has_value());
  EXPECT_EQ(facts.symbol_versions.at("GLIBC").text(), "2.36");
}

TEST(MachineSpec, TakesComputeCapabilitiesToo) {
  const MachineFacts facts = described({.gpus = {"9.0", "10.3a", "12.1"}});
  ASSERT_EQ(facts.gpus.size(), 3u);
  EXPECT_EQ(facts.gpus[0].arch, "sm_90");
  EXPECT_EQ(facts.gpus[1].arch, "sm_103");
  EXPECT_EQ(facts.gpus[2].arch, "sm_121");
  for (const char* text :
       {"9", "9.", ".0", "9.00", "9.0b", "90.", "123.4", "compute_9.0", "-9.0"}) {
    EXPECT_TRUE(check_spec({.gpus = {text}}).has_value()) << text;
  }
}

// NVIDIA's table of drivers and CUDA versions, line by line.
TEST(MachineSpec, KnowsWhichCudaADriverSupports) {
  const std::pair<const char*, const char*> kRows[] = {
      {"450", "11.0"}, {"455", "11.1"}, {"460", "11.2"},    {"465", "11.3"},       {"470", "11.4"},
      {"495", "11.5"}, {"510", "11.6"}, {"515", "11.7"},    {"520", "11.8"},       {"525", "12.0"},
      {"530", "12.1"}, {"535", "12.2"}, {"545", "12.3"},    {"550", "12.4"},       {"555", "12.5"},
      {"560", "12.6"}, {"565", "12.7"}, {"570", "12.8"},    {"575", "12.9"},       {"580", "13.0"},
      {"590", "13.1"}, {"536", "12.2"}, {"570.86", "12.8"}, {"580.95.05", "13.0"}, {"594", "13.1"}};
  for (const auto& [driver, cuda] : kRows) {
    const MachineFacts facts = described({.driver = driver});
    ASSERT_TRUE(facts.cuda_driver.has_value()) << driver;
    EXPECT_EQ(facts.cuda_driver->text(), cuda) << driver;
    EXPECT_EQ(facts.cuda_driver_release, driver);
    EXPECT_TRUE(facts.gpus.empty());
  }
  EXPECT_EQ(described({.cuda = "12.8"}).cuda_driver->text(), "12.8");
  EXPECT_EQ(described({.rocm = "6.2"}).rocm->text(), "6.2");
}

TEST(MachineSpec, AnotherCLibraryLeavesTheCompilersUnknown) {
  const MachineFacts old = described({.glibc = "2.17"});
  EXPECT_EQ(old.symbol_versions.at("GLIBC").text(), "2.17");
  EXPECT_EQ(old.symbol_versions.count("GLIBCXX"), 0u);
  EXPECT_EQ(old.symbol_versions.count("CXXABI"), 0u);
  const MachineFacts both = described({.glibc = "2.28", .libstdcxx = "3.4.25"});
  EXPECT_EQ(both.symbol_versions.at("GLIBCXX").text(), "3.4.25");
  EXPECT_EQ(both.symbol_versions.count("CXXABI"), 0u);
}

TEST(MachineSpec, AnotherProcessorHasOtherLibraries) {
  const MachineFacts arm = described({.glibc = "2.31", .arch = "aarch64"});
  EXPECT_EQ(arm.elf_machine, EM_AARCH64);
  EXPECT_EQ(arm.cpu_level, 0);
  EXPECT_EQ(arm.symbol_versions.size(), 1u);
  EXPECT_TRUE(described({.arch = "aarch64"}).symbol_versions.empty());
  EXPECT_EQ(described({.arch = "x86_64"}).cpu_level, 4);
  EXPECT_EQ(described({.arch = "x86_64"}).symbol_versions.size(), 3u);
  EXPECT_EQ(described({.cpu = "x86-64-v3"}).cpu_level, 3);
}

TEST(MachineSpec, SaysWhatCannotBe) {
  const std::pair<MachineSpec, const char*> kCases[] = {
      {{.gpus = {"sm_90", "compute_90"}}, "gpu"},
      {{.gpus = {"H100"}}, "gpu"},
      {{.gpus = {"gfx9-generic"}}, "gpu"},
      {{.gpus = {""}}, "gpu"},
      {{.driver = "440"}, "driver"},
      {{.driver = "595"}, "driver"},
      {{.driver = "r570"}, "driver"},
      {{.driver = "570", .cuda = "12.8"}, "driver"},
      {{.cuda = "12"}, "cuda"},
      {{.glibc = "2"}, "glibc"},
      {{.libstdcxx = "GLIBCXX_3.4.25"}, "libstdcxx"},
      {{.arch = "riscv64"}, "arch"},
      {{.cpu = "x86-64-v5"}, "cpu"},
      {{.arch = "aarch64", .cpu = "x86-64-v3"}, "cpu"},
      {{.rocm = "six"}, "rocm"}};
  for (const auto& [spec, name] : kCases) {
    const std::optional<SpecProblem> problem = check_spec(spec);
    ASSERT_TRUE(problem.has_value()) << name;
    EXPECT_EQ(problem->name, name);
    EXPECT_FALSE(problem->found.empty());
    EXPECT_FALSE(problem->wanted.empty());
  }
  EXPECT_NE(check_spec({.driver = "999"})->found.find("not known"), std::string::npos);
}

}  // namespace
}  // namespace opdock
