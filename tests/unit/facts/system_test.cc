// Tests the CPU, symbol versions and libraries of this process, compared with what other programs
// report.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "child.h"
#include "facts/arch.h"
#include "facts/in_process.h"
#include "facts/probes.h"
#include "opdock/opdock.h"

namespace opdock::test {
namespace {

#if defined(__x86_64__)
// The dynamic loader lists the levels that it searches: "x86-64-v3 (supported, searched)".
TEST(Cpu, LevelIsTheLoaders) {
  const char kLoader[] = "/lib64/ld-linux-x86-64.so.2";
  if (access(kLoader, X_OK) != 0) GTEST_SKIP() << kLoader << " is not here";
  const std::string help = run({kLoader, "--help"}, {});
  if (help.find("x86-64-v2") == help.npos) GTEST_SKIP() << "the loader does not list levels";
  int level = 1;
  for (int i = 2; i <= 4; ++i) {
    if (help.find("x86-64-v" + std::to_string(i) + " (supported") != help.npos) level = i;
  }
  MachineFacts facts;
  probe_cpu(&facts);
  EXPECT_EQ(facts.cpu_level, level) << help;
}

TEST(Cpu, FeaturesAreTheKernels) {
  std::ifstream file("/proc/cpuinfo");
  std::string flags;
  while (std::getline(file, flags) && !flags.starts_with("flags")) {
  }
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo has no flags";
  MachineFacts facts;
  probe_cpu(&facts);
  const std::pair<const char*, const char*> names[] = {
      {"sse4.2", " sse4_2 "}, {"avx", " avx "},   {"avx2", " avx2 "},
      {"fma", " fma "},       {"f16c", " f16c "}, {"avx512f", " avx512f "}};
  for (const auto& [ours, kernels] : names) {
    const bool here = std::find(facts.cpu_features.begin(), facts.cpu_features.end(), ours) !=
                      facts.cpu_features.end();
    EXPECT_EQ(here, (flags + " ").find(kernels) != flags.npos) << ours;
  }
}
#endif

TEST(Cpu, ArchitectureIsUnames) {
  MachineFacts facts;
  probe_cpu(&facts);
  std::string uname = run({"uname", "-m"}, {});
  uname.erase(uname.find_last_not_of('\n') + 1);
  EXPECT_EQ(facts.cpu_arch, uname);
  EXPECT_NE(facts.elf_machine, 0);
}

std::string test_folder() {
  return std::filesystem::canonical("/proc/self/exe").parent_path();
}

// Returns the highest PREFIX_1.2.3 that readelf finds in a library that this process has loaded.
std::string newest_by_readelf(const std::string& library, const std::string& prefix) {
  std::ifstream maps("/proc/self/maps");
  std::string path;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/" + library) != line.npos) path = line.substr(line.find('/'));
  }
  if (path.empty()) return {};
  std::istringstream lines(run({"readelf", "-V", "-W", path}, {}));
  Version newest;
  for (std::string word; lines >> word;) {
    if (!word.starts_with(prefix + "_")) continue;
    const auto version = Version::parse(word.substr(prefix.size() + 1));
    if (version && newest < *version) newest = *version;
  }
  return newest.text();
}

TEST(SymbolVersions, AreThoseOfTheLoadedLibraries) {
  if (std::system("command -v readelf > /dev/null") != 0) GTEST_SKIP() << "readelf is not here";
  MachineFacts facts;
  probe_symbol_versions(&facts);
  const std::pair<const char*, const char*> libraries[] = {{"libc.so.6", "GLIBC"},
                                                           {"libstdc++.so.6", "GLIBCXX"},
                                                           {"libstdc++.so.6", "CXXABI"},
                                                           {"libgcc_s.so.1", "GCC"}};
  for (const auto& [library, prefix] : libraries) {
    const std::string newest = newest_by_readelf(library, prefix);
    // A compiler may link libstdc++ statically, which the next test covers.
    if (newest.empty() && std::string(library) != "libc.so.6") continue;
    EXPECT_EQ(facts.symbol_versions[prefix].text(), newest);
  }
}

nlohmann::json facts_of_static_program(const std::map<std::string, std::string>& variables) {
  return nlohmann::json::parse(
      run({test_folder() + "/print_facts_static", "nvml", "libnone.so", "cuda", "libnone.so"},
          variables));
}

TEST(SymbolVersions, OfALibraryThatIsNotInTheProcessAreThoseOfTheOneTheLoaderFinds) {
  const nlohmann::json facts = facts_of_static_program({});
  if (facts["has_libstdcxx"] == true) GTEST_SKIP() << "a sanitizer brings libstdc++ by itself";
  MachineFacts here;
  probe_symbol_versions(&here);
  for (const char* prefix : {"GLIBC", "GLIBCXX", "CXXABI", "GCC"}) {
    EXPECT_EQ(facts["symbol_versions"].value(prefix, ""), here.symbol_versions[prefix].text());
  }
}

TEST(SymbolVersions, FollowLdLibraryPathForALibraryThatIsNotInTheProcess) {
  // If a sanitizer brings libstdc++, the program would not even start with the fake one.
  if (facts_of_static_program({})["has_libstdcxx"] == true) {
    GTEST_SKIP() << "a sanitizer brings libstdc++ by itself";
  }
  const TemporaryFolder folder;
  std::filesystem::copy_file(test_folder() + "/fake_libstdcxx.so",
                             folder.path() / "libstdc++.so.6");
  const nlohmann::json facts =
      facts_of_static_program({{"LD_LIBRARY_PATH", folder.path().string()}});
  EXPECT_EQ(facts["symbol_versions"].value("GLIBCXX", ""), "9.8.7");
}

TEST(InProcess, FindsLoadedLibraries) {
  MachineFacts before;
  probe_in_process(&before);
  EXPECT_EQ(before.in_process.count("cudart"), 0u);
  void* const cudart = dlopen((test_folder() + "/libcudart.so.12").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(cudart, nullptr) << dlerror();
  void* const torch = dlopen((test_folder() + "/libtorch_cpu.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(torch, nullptr) << dlerror();
  MachineFacts after;
  probe_in_process(&after);
  EXPECT_EQ(after.in_process["cudart"].text(), "12.9");
  EXPECT_EQ(after.in_process["torch"].text(), "2.13.1");
  EXPECT_EQ(probe_machine().in_process["cudart"].text(), "12.9");
  // Other tests look at the libraries in this process too.
  dlclose(torch);
  dlclose(cudart);
}

TEST(InProcess, WhatIsToldOutranksWhatIsFound) {
  EXPECT_TRUE(note_in_process("torch", "2.14.0a0+git12"));
  MachineFacts facts;
  probe_in_process(&facts);
  EXPECT_EQ(facts.in_process["torch"].text(), "2.14.0");
  EXPECT_TRUE(note_in_process("torch", "2.13.0+cpu"));
  facts = {};
  probe_in_process(&facts);
  EXPECT_EQ(facts.in_process["torch"].text(), "2.13.0");
}

TEST(InProcess, RefusesWhatIsNoVersion) {
  char error[256] = "";
  EXPECT_EQ(opdock_note_library("jax", "unknown", error, sizeof error), OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error).find("\"unknown\""), std::string::npos);
  EXPECT_EQ(opdock_note_library(nullptr, "1", nullptr, 0), OPDOCK_INVALID_ARGUMENT);
  EXPECT_EQ(opdock_note_library("jax", nullptr, nullptr, 0), OPDOCK_INVALID_ARGUMENT);
  EXPECT_EQ(opdock_note_library("jax", "0.5", nullptr, 0), OPDOCK_OK);
}

TEST(Machine, ManyThreadsGetOneAnswer) {
  std::vector<std::thread> threads;
  std::vector<std::string> answers(8);
  for (std::string& answer : answers) {
    threads.emplace_back([&answer] {
      const MachineFacts facts = probe_machine();
      answer = facts.cpu_arch + facts.cuda_problem + std::to_string(facts.gpus.size());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& answer : answers) EXPECT_EQ(answer, answers[0]);
}

TEST(Arch, ReadsCudaNames) {
  const std::optional<CudaArch> arch = parse_cuda_arch("compute_100f");
  ASSERT_TRUE(arch);
  EXPECT_TRUE(arch->is_virtual);
  EXPECT_EQ(arch->major, 10);
  EXPECT_EQ(arch->minor, 0);
  EXPECT_EQ(arch->suffix, 'f');
  for (const char* name : {"sm_75", "sm_90a", "sm_121f", "compute_50"}) {
    EXPECT_EQ(to_text(*parse_cuda_arch(name)), name);
  }
  for (const char* name : {"", "sm_", "sm_9", "sm_90b", "sm_90aa", "sm90", "compute_", "sm_-80",
                           "sm_ 80", "gfx90a", "sm_99999999999"}) {
    EXPECT_FALSE(parse_cuda_arch(name)) << name;
  }
}

TEST(Arch, ReadsTargetIds) {
  const std::optional<GfxArch> arch = parse_gfx_arch("gfx90a:sramecc+:xnack-");
  ASSERT_TRUE(arch);
  EXPECT_EQ(arch->processor, "gfx90a");
  EXPECT_EQ(arch->sramecc, true);
  EXPECT_EQ(arch->xnack, false);
  EXPECT_FALSE(parse_gfx_arch("gfx1030")->xnack.has_value());
  EXPECT_TRUE(parse_gfx_arch("gfx9-4-generic")->is_generic());
  EXPECT_EQ(gfx_version("gfx90a")->major, 9u);
  EXPECT_EQ(gfx_version("gfx90a")->minor, 0u);
  EXPECT_EQ(gfx_version("gfx1036")->major, 10u);
  EXPECT_EQ(gfx_version("gfx1036")->minor, 3u);
  for (const char* text : {"gfx9-4-generic", "gfx90", "gfx", "sm_90", "gfx90ax", "gfx-103", ""})
    EXPECT_FALSE(gfx_version(text)) << text;
  for (const char* name :
       {"", "gfx", "gfx9", "sm_80", "gfx90a:", "gfx90a:xnack", "gfx90a:foo+", "gfx90a::xnack+"}) {
    EXPECT_FALSE(parse_gfx_arch(name)) << name;
  }
}

}  // namespace
}  // namespace opdock::test
