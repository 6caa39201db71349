// SPDX-License-Identifier: Apache-2.0
#include "arch/choose.h"

#include <gtest/gtest.h>

namespace opdock {
namespace {

CompilerArchs nvrtc12() {
  return archs_of_nvrtc(Version{12, 9}, {50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90,
                                         100, 101, 103, 120, 121});
}

CompilerArchs nvrtc13() {
  return archs_of_nvrtc(Version{13, 0}, {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121});
}

Gpu cuda_gpu(int number, int index = 0) {
  Gpu gpu{};
  gpu.backend = Backend::kCuda;
  gpu.index = index;
  gpu.name = "GPU";
  gpu.major = number / 10;
  gpu.minor = number % 10;
  gpu.tegra = number == 87;
  gpu.arch = "sm_" + std::to_string(number);
  return gpu;
}

Gpu rocm_gpu(const char* arch) {
  Gpu gpu{};
  gpu.backend = Backend::kRocm;
  gpu.name = "Instinct";
  gpu.arch = arch;
  return gpu;
}

struct Outcome {
  std::string text, origin;
  std::vector<Reason> notices;
  Reason reason{};
};

Outcome choose(std::vector<ArchSource> sources, const std::vector<int>& gpus,
               std::vector<CompilerArchs> compilers) {
  CudaArchInputs inputs;
  inputs.sources = std::move(sources);
  inputs.compilers = std::move(compilers);
  inputs.gpus.push_back(rocm_gpu("gfx90a"));  // an AMD GPU never matters here
  for (const int number : gpus)
    inputs.gpus.push_back(cuda_gpu(number, static_cast<int>(inputs.gpus.size())));
  Outcome out;
  const auto choice = choose_cuda_archs(inputs, &out.reason);
  out.text = choice ? choice->text() : "refused";
  if (choice) out.origin = choice->origin;
  if (choice) out.notices = choice->notices;
  return out;
}

std::string chosen(const char* list, const std::vector<int>& gpus, const CompilerArchs& compiler) {
  return choose({{"--archs", list}}, gpus, {compiler}).text;
}

// ---- which source decides

TEST(CudaArchs, OptionOverEnvironmentOverConfigurationOverGpusOverDefault) {
  Environment environment;
  environment.variables["TORCH_CUDA_ARCH_LIST"] = "9.0a";
  const auto with = [&](const char* option, const char* config) {
    return cuda_arch_sources("--archs", option, environment, "/etc/opdock/config.toml", config);
  };
  Outcome out = choose(with("8.0", "8.6"), {90}, {nvrtc12()});
  EXPECT_EQ(out.text + " " + out.origin, "8.0 --archs");
  out = choose(with("", "8.6"), {90}, {nvrtc12()});
  EXPECT_EQ(out.text + " " + out.origin, "9.0a TORCH_CUDA_ARCH_LIST");
  environment.variables["TORCH_CUDA_ARCH_LIST"] = " ";  // the same as not set
  out = choose(with("", "8.6"), {80}, {nvrtc12()});
  EXPECT_EQ(out.text + " " + out.origin, "8.6 cuda-archs in /etc/opdock/config.toml");
  environment.variables.clear();
  out = choose(with("", ""), {89}, {nvrtc12()});
  EXPECT_EQ(out.text + " " + out.origin, "8.9 the visible GPUs");
  out = choose(with("", ""), {}, {nvrtc12()});
  EXPECT_EQ(out.text, "7.5+PTX;8.0;9.0;10.0;12.0+PTX");
  EXPECT_EQ(out.origin, "the default of NVRTC 12.9");
  out = choose(with("", ""), {}, {});
  EXPECT_EQ(out.text + " " + out.origin, " no CUDA compiler");
}

TEST(CudaArchs, AMistakeInTheSourceThatDecidesIsAnErrorAndInTheOthersIsNot) {
  Outcome out = choose({{"--archs", "8.0"}, {"TORCH_CUDA_ARCH_LIST", "nonsense"}}, {}, {nvrtc12()});
  EXPECT_EQ(out.text, "8.0");
  out = choose({{"--archs", ""}, {"TORCH_CUDA_ARCH_LIST", "8.0;nonsense"}}, {90}, {nvrtc12()});
  EXPECT_EQ(out.text, "refused");
  EXPECT_EQ(out.reason.code, Code::kArchListInvalid);
  EXPECT_NE(out.reason.found.find("character 5 of TORCH_CUDA_ARCH_LIST"), std::string::npos);
}

// ---- what the compiler knows

TEST(CudaArchs, WhatNoCompilerKnowsIsRefusedByNameWithTheWayOut) {
  const std::tuple<const char*, const char*, const char*> rows[] = {
      {"6.0;6.1;7.0;8.0", "6.0, 6.1, 7.0 in --archs", "leave 6.0 out (the oldest known is 7.5)"},
      {"8.0;10.1", "10.1 in --archs", "write 10.0+PTX, which the driver compiles for 10.1"},
      {"13.0a", "13.0a in --archs", "write 12.1+PTX, which the driver compiles for 13.0"},
      {"Pascal", "6.0, 6.1+PTX in", "leave 6.0 out"},
  };
  for (const auto& [list, found, advice] : rows) {
    const Outcome out = choose({{"--archs", list}}, {}, {nvrtc13()});
    ASSERT_EQ(out.text, "refused") << list;
    EXPECT_EQ(out.reason.code, Code::kBuildArch);
    EXPECT_NE(out.reason.found.find(found), std::string::npos) << out.reason.found;
    EXPECT_NE(out.reason.wanted.find("NVRTC 13.0 knows 7.5, 8.0, 8.6"), std::string::npos);
    EXPECT_NE(out.reason.advice.find(advice), std::string::npos) << out.reason.advice;
  }
}

TEST(CudaArchs, OneOfSeveralCompilersIsEnough) {
  EXPECT_EQ(choose({{"--archs", "6.0;11.0"}}, {}, {nvrtc12(), nvrtc13()}).text, "6.0;11.0");
  EXPECT_EQ(choose({{"--archs", "6.0;11.0"}}, {}, {nvrtc13()}).text, "refused");
}

TEST(CudaArchs, SuffixesAreTheCompilersToo) {
  const CompilerArchs nvrtc128 = archs_of_nvrtc(Version{12, 8}, {80, 90, 100, 120});
  EXPECT_EQ(chosen("9.0a;10.0a", {}, nvrtc128), "9.0a;10.0a");
  const Outcome out = choose({{"--archs", "10.0f"}}, {}, {nvrtc128});
  EXPECT_EQ(out.reason.code, Code::kBuildArch);
  EXPECT_NE(out.reason.advice.find("write 10.0 (no compiler here takes the suffix f)"),
            std::string::npos)
      << out.reason.advice;
  EXPECT_EQ(chosen("10.0f", {}, nvrtc12()), "10.0f");
  EXPECT_EQ(chosen("9.0a", {}, archs_of_nvrtc(Version{11, 8}, {80, 90})), "refused");
}

TEST(CudaArchs, WithoutACompilerToAskAListIsTakenAsItIs) {
  EXPECT_EQ(choose({{"--archs", "3.5;99.0"}}, {}, {}).text, "3.5;99.0");
  for (const char* list : {"all", "all-major"})
    EXPECT_EQ(choose({{"--archs", list}}, {}, {}).reason.code, Code::kBuildArch);
}

// ---- words

TEST(CudaArchs, AllAndAllMajor) {
  EXPECT_EQ(chosen("all-major", {}, nvrtc13()), "7.5;8.0;9.0;10.0;11.0;12.0+PTX");
  EXPECT_EQ(chosen("all-major", {}, nvrtc12()), "5.0;6.0;7.0;8.0;9.0;10.0;12.0+PTX");
  EXPECT_EQ(chosen("all", {}, nvrtc13()),
            "7.5;8.0;8.6;8.7;8.8;8.9;9.0;10.0;10.3;11.0;12.0+PTX;12.1");
  EXPECT_EQ(chosen("all-major;9.0a", {}, nvrtc13()), "7.5;8.0;9.0;9.0a;10.0;11.0;12.0+PTX");
}

TEST(CudaArchs, TheDefaultCanBeAskedForByName) {
  EXPECT_EQ(chosen("default", {90}, nvrtc12()), "7.5+PTX;8.0;9.0;10.0;12.0+PTX");
  EXPECT_EQ(chosen("9.0a default", {}, nvrtc13()), "7.5+PTX;8.0;9.0;9.0a;10.0;11.0;12.0+PTX");
  EXPECT_EQ(choose({{"--archs", "default"}}, {}, {}).text, "");
}

TEST(CudaArchs, NativeIsTheGpusWithPtxOfTheNewest) {
  EXPECT_EQ(chosen("native", {90, 80, 90}, nvrtc12()), "8.0;9.0+PTX");
  EXPECT_EQ(chosen("native;7.5", {86}, nvrtc12()), "7.5;8.6+PTX");
  const Outcome out = choose({{"--archs", "native"}}, {}, {nvrtc12()});
  EXPECT_EQ(out.text, "refused");
  EXPECT_NE(out.reason.found.find("no visible NVIDIA GPU"), std::string::npos);
}

TEST(CudaArchs, AutoIsWhatIsHereAndPerhapsNothing) {
  EXPECT_EQ(chosen("auto", {90, 80, 90}, nvrtc12()), "8.0;9.0");
  EXPECT_EQ(chosen("auto;9.0+PTX", {}, nvrtc12()), "9.0+PTX");
  EXPECT_EQ(chosen("auto;9.0+PTX", {90}, nvrtc12()), "9.0+PTX");
  EXPECT_EQ(chosen("auto", {}, nvrtc12()), "");
  EXPECT_EQ(chosen("auto", {52}, nvrtc13()), "") << "one that no compiler here knows";
  CudaArchInputs inputs;
  Reason reason{};
  for (const char* list : {"auto", "auto;9.0", "", "default"}) {
    inputs.sources = {{"--archs", list}};
    const std::optional<CudaArchChoice> choice = choose_cuda_archs(inputs, &reason);
    ASSERT_TRUE(choice) << list;
    EXPECT_EQ(choice->nothing, std::string(list) == "auto") << list;
  }
}

TEST(CudaArchs, AGpuNewerThanTheCompilerGetsPtx) {
  for (const char* list : {"native", ""}) {
    const Outcome out = choose({{"--archs", list}}, {80, 130}, {nvrtc12()});
    EXPECT_EQ(out.text, "8.0;12.1+PTX");
    ASSERT_EQ(out.notices.size(), 1u);
    EXPECT_EQ(out.notices[0].code, Code::kArchPtx);
    EXPECT_EQ(info(out.notices[0].code).meaning.find("will not run"), std::string::npos);
    EXPECT_NE(out.notices[0].found.find("13.0"), std::string::npos);
    EXPECT_NE(out.notices[0].advice.find("12.1+PTX"), std::string::npos);
  }
}

TEST(CudaArchs, AGpuOlderThanTheCompilerIsNamed) {
  Outcome out = choose({}, {60}, {nvrtc13()});
  EXPECT_EQ(out.text, "refused");
  EXPECT_NE(out.reason.found.find("a GPU of 6.0"), std::string::npos);
  EXPECT_NE(out.reason.advice.find("older toolkit"), std::string::npos);
  out = choose({}, {60, 90}, {nvrtc13()});
  EXPECT_EQ(out.text, "9.0");
  ASSERT_EQ(out.notices.size(), 1u);
  EXPECT_EQ(out.notices[0].code, Code::kArchUncovered);
  EXPECT_NE(out.notices[0].wanted.find("6.0 for GPU"), std::string::npos);
  EXPECT_NE(out.notices[0].advice.find("older toolkit"), std::string::npos);
}

// ---- what a list leaves out

TEST(CudaArchs, GpusThatTheListDoesNotServeAreNamed) {
  const std::tuple<const char*, int, bool> rows[] = {
      {"9.0a", 90, true},       {"9.0a", 80, false},     {"9.0a", 100, false},
      {"9.0a+PTX", 100, false}, {"9.0+PTX", 100, true},  {"9.0", 100, false},
      {"8.0", 89, true},        {"8.6", 80, false},      {"10.0f", 103, true},
      {"10.0a", 103, false},    {"8.0", 87, false},      {"8.0+PTX", 87, true},
      {"7.5+PTX", 121, true},   {"12.0+PTX", 90, false},
  };
  for (const auto& [list, gpu, covered] : rows) {
    const Outcome out = choose({{"TORCH_CUDA_ARCH_LIST", list}}, {gpu}, {nvrtc12()});
    EXPECT_EQ(out.notices.empty(), covered) << list << " on " << gpu;
    if (covered || out.notices.empty()) continue;
    EXPECT_EQ(out.notices[0].code, Code::kArchUncovered);
    EXPECT_NE(info(out.notices[0].code).meaning.find("will not run"), std::string::npos);
    EXPECT_EQ(out.notices[0].found, std::string(list) + " from TORCH_CUDA_ARCH_LIST");
  }
}

// PTX serves the newer GPU, which will run it; nothing serves the older one.
TEST(CudaArchs, AnOlderAndANewerGpuAreToldApart) {
  const Outcome out = choose({}, {60, 140}, {nvrtc13()});
  EXPECT_EQ(out.text, "12.1+PTX");
  ASSERT_EQ(out.notices.size(), 2u);
  EXPECT_EQ(out.notices[0].code, Code::kArchPtx);
  EXPECT_NE(out.notices[0].found.find("14.0"), std::string::npos);
  EXPECT_EQ(out.notices[1].code, Code::kArchUncovered);
  EXPECT_NE(out.notices[1].wanted.find("6.0 for GPU"), std::string::npos);
}

TEST(CudaArchs, DefaultOfCompilersOfAnyAge) {
  const auto of = [](std::vector<CompilerArchs> compilers) {
    return choose({}, {}, std::move(compilers)).text;
  };
  EXPECT_EQ(of({nvrtc13()}), "7.5+PTX;8.0;9.0;10.0;11.0;12.0+PTX");
  EXPECT_EQ(of({nvrtc12(), nvrtc13()}), "7.5+PTX;8.0;9.0;10.0;11.0;12.0+PTX");
  EXPECT_EQ(of({archs_of_nvrtc(Version{20, 1}, {90, 130, 131, 140})}), "9.0+PTX;13.0;14.0+PTX");
  EXPECT_EQ(of({archs_of_nvrtc(Version{9, 0}, {30, 35, 50, 60, 61, 70})}),
            "3.0+PTX;5.0;6.0;7.0+PTX");
  EXPECT_EQ(of({archs_of_nvrtc(Version{20, 1}, {90})}), "9.0+PTX");
}

// ---- without asking a compiler

TEST(CudaArchs, TheRequestOfABuildAsksNoCompiler) {
  const std::tuple<const char*, int, const char*> rows[] = {
      {"9.0a;8.0", 90, "8.0;9.0a"},
      {"all-major", 90, "all-major"},
      {"9.0a all all-major", 0, "all;all-major;9.0a"},
      {"default", 90, "default"},
      {"native", 90, "9.0+PTX"},
      {"all,native", 90, "all;9.0+PTX"},
      {"auto", 90, "9.0"},
      {"auto", 0, ""},
      {"", 90, "9.0"},
      {"", 0, ""},
      {"3.5;99.0", 0, "3.5;99.0"},
      {"Hopper", 0, "9.0+PTX"},
  };
  for (const auto& [list, gpu, wanted] : rows) {
    Reason reason{};
    std::vector<Gpu> gpus = {rocm_gpu("gfx90a")};
    if (gpu != 0) gpus.push_back(cuda_gpu(gpu));
    const auto request = request_cuda_archs({{"--archs", list}}, gpus, 0, &reason);
    ASSERT_TRUE(request) << list;
    EXPECT_EQ(request->text, wanted);
    EXPECT_TRUE(request->notices.empty()) << list;
  }
  Reason reason{};
  EXPECT_EQ(request_cuda_archs({{"X", "9.0a"}}, {cuda_gpu(80)}, 0, &reason)->notices.size(), 1u);
  EXPECT_FALSE(request_cuda_archs({{"X", "native"}}, {}, 0, &reason));
  EXPECT_EQ(reason.code, Code::kBuildArch);
  EXPECT_FALSE(request_cuda_archs({{"X", "sm80"}}, {}, 0, &reason));
  EXPECT_EQ(reason.code, Code::kArchListInvalid);
}

TEST(CudaArchs, TheRequestSaysWhatStandsForGpus) {
  const std::tuple<const char*, std::vector<int>, const char*> rows[] = {
      {"", {90}, "9.0"},
      {"", {120, 90, 90}, "9.0;12.0"},
      {"", {}, ""},
      {"native", {90}, "9.0"},
      {"native;9.0", {90, 120}, "12.0"},
      {"native;9.0a", {90}, "9.0"},
      {"all;native", {90}, "9.0"},
      {"9.0", {90}, ""},
      {"all", {90}, ""},
  };
  for (const auto& [list, numbers, wanted] : rows) {
    Reason reason{};
    std::vector<Gpu> gpus = {rocm_gpu("gfx90a")};
    for (const int number : numbers) gpus.push_back(cuda_gpu(number));
    const auto request = request_cuda_archs({{"--archs", list}}, gpus, 0, &reason);
    ASSERT_TRUE(request) << list;
    EXPECT_EQ(request->gpu_archs, wanted) << list;
  }
  EXPECT_EQ(gpu_numbers_of("9.0;12.0"), (std::vector<int>{90, 120}));
  EXPECT_TRUE(gpu_numbers_of("").empty());
}

TEST(CudaArchs, WhatStandsForAGpuIsNotRefusedButGetsPtx) {
  const auto choose_for = [](const char* list, std::vector<int> gpu_numbers, Outcome* out) {
    CudaArchInputs inputs;
    inputs.sources = {{"--archs", list}};
    inputs.compilers = {nvrtc12()};
    inputs.gpu_numbers = std::move(gpu_numbers);
    const auto choice = choose_cuda_archs(inputs, &out->reason);
    if (choice) out->notices = choice->notices;
    return choice ? choice->text() : "refused";
  };
  Outcome out;
  EXPECT_EQ(choose_for("9.0;13.0", {130}, &out), "9.0;12.1+PTX");
  ASSERT_EQ(out.notices.size(), 1u);
  EXPECT_EQ(out.notices[0].code, Code::kArchPtx);
  EXPECT_NE(out.notices[0].found.find("13.0"), std::string::npos);
  EXPECT_NE(out.notices[0].advice.find("12.1+PTX"), std::string::npos);
  out = {};
  EXPECT_EQ(choose_for("9.0", {90}, &out), "9.0");
  EXPECT_TRUE(out.notices.empty());
  // An architecture that the user wrote is still refused, and only it is named.
  EXPECT_EQ(choose_for("13.0;14.0", {130}, &out), "refused");
  EXPECT_EQ(out.reason.found.find("13.0"), out.reason.found.find("13.0;14.0"));
  EXPECT_EQ(choose_for("13.0a", {130}, &out), "refused");
  EXPECT_EQ(choose_for("3.0", {30}, &out), "refused");
  EXPECT_EQ(out.reason.code, Code::kBuildArch);
}

// ---- AMD

TEST(RocmArchs, SourcesAndGpus) {
  Environment environment;
  environment.variables["PYTORCH_ROCM_ARCH"] = "gfx942";
  const auto choose = [&](const char* option, std::vector<Gpu> gpus) {
    Outcome out;
    const auto choice = choose_rocm_archs(
        {rocm_arch_sources("--hip-archs", option, environment), std::move(gpus)}, &out.reason);
    out.text = choice ? choice->text() : "refused";
    if (choice) out.origin = choice->origin;
    if (choice) out.notices = choice->notices;
    return out;
  };
  const std::vector<Gpu> gpus = {rocm_gpu("gfx90a:sramecc+:xnack-"), cuda_gpu(90)};
  EXPECT_EQ(choose("gfx1030;gfx90a", gpus).text, "gfx1030;gfx90a");
  EXPECT_TRUE(choose("gfx1030;gfx90a", gpus).notices.empty());
  EXPECT_EQ(choose("", gpus).text, "gfx942");
  ASSERT_EQ(choose("", gpus).notices.size(), 1u);
  EXPECT_EQ(choose("", gpus).notices[0].found, "gfx942 from PYTORCH_ROCM_ARCH");
  EXPECT_EQ(choose("native;gfx906", gpus).text, "gfx906;gfx90a");
  EXPECT_EQ(choose("native;gfx90a:xnack-", gpus).text, "gfx90a:xnack-");
  EXPECT_EQ(choose("gfx90a:xnack+", gpus).notices.size(), 1u);
  EXPECT_EQ(choose("native", {}).reason.code, Code::kBuildArch);
  EXPECT_EQ(choose("auto", gpus).text, choose("native", gpus).text);
  EXPECT_EQ(choose("auto", {}).text, "");
  EXPECT_EQ(choose("auto;gfx906", {}).text, "gfx906");
  EXPECT_EQ(choose("90a", gpus).reason.code, Code::kArchListInvalid);
  environment.variables.clear();
  EXPECT_EQ(choose("", gpus).text, "gfx90a");
  EXPECT_EQ(choose("", gpus).origin, "the visible GPUs");
  EXPECT_EQ(choose("", {}).text, "");
  EXPECT_EQ(choose("", {}).origin, "no AMD GPU");
}

}  // namespace
}  // namespace opdock
