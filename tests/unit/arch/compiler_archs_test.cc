// Tests what compilers report that they know; uses nvcc itself if it is installed.
// SPDX-License-Identifier: Apache-2.0
#include "arch/compiler_archs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "arch/choose.h"
#include "arch/flags.h"

namespace opdock {
namespace {

std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return out;
  char buffer[4096];
  for (size_t count; (count = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;)
    out.append(buffer, count);
  pclose(pipe);
  return out;
}

TEST(CompilerArchs, FromNvccsHelp) {
  const CompilerArchs archs = archs_of_nvcc(Version{13, 0}, R"(
        --gpu-architecture=sm_100' is equivalent to 'nvcc --gpu-architecture=compute_100
        Allowed values for this option:  'compute_75','compute_90a','lto_100','sm_100',
        'sm_100a','sm_100f','sm_75','sm_90','sm_90a','sm_75'.)");
  EXPECT_EQ(archs.name, "nvcc 13.0");
  EXPECT_EQ(to_text(archs.targets), "7.5;9.0;9.0a;10.0;10.0a;10.0f");
  EXPECT_EQ(knowledge_of({archs}), "nvcc 13.0 knows 7.5, 9.0, 10.0");
}

TEST(CompilerArchs, FromNvccsList) {
  const CompilerArchs archs = archs_of_nvcc(Version{12, 9}, "sm_50\nsm_90\nsm_90a\n");
  EXPECT_EQ(to_text(archs.targets), "5.0;9.0;9.0a");
}

TEST(CompilerArchs, OfNoNvcc) {
  EXPECT_TRUE(archs_of_nvcc(Version{}, "sh: nvcc: not found").targets.empty());
  EXPECT_TRUE(archs_of_nvcc(Version{}, "sm_ sm_x 'sm_9' sm_99999").targets.empty());
  EXPECT_EQ(knowledge_of({CompilerArchs{"nvcc 1.0", {}}}), "nvcc 1.0 knows none");
}

TEST(CompilerArchs, OfARunTimeCompiler) {
  EXPECT_EQ(to_text(archs_of_nvrtc(Version{12, 9, 86}, {80, 90, 120}).targets),
            "8.0;9.0;9.0a;12.0;12.0a;12.0f");
  EXPECT_EQ(archs_of_nvrtc(Version{12, 9, 86}, {80}).name, "NVRTC 12.9");
  EXPECT_EQ(to_text(archs_of_nvrtc(Version{11, 8}, {80, 90}).targets), "8.0;9.0");
}

// nvcc's own meaning of all and all-major is the reference for Opdock's.
class WithNvcc : public testing::Test {
 protected:
  void SetUp() override {
    help_ = output_of("nvcc --help");
    if (help_.find("--gpu-architecture") == std::string::npos) GTEST_SKIP() << "no nvcc in PATH";
  }

  // Returns the images that nvcc would make, as "sm_80" or "compute_120".
  static std::set<std::string> images(const std::string& arguments) {
    const std::string text = output_of(
        "(folder=$(mktemp -d) && cd $folder && printf '' >empty.cu && "
        "nvcc --dryrun --fatbin -o empty.fatbin empty.cu " +
        arguments + "; rm -rf $folder)");
    std::set<std::string> out;
    for (const char* key : {"kind=elf,sm=", "kind=ptx,sm="}) {
      const std::string prefix = key;
      for (size_t at = text.find(prefix); at != text.npos; at = text.find(prefix, at + 1)) {
        const size_t begin = at + prefix.size();
        std::string name = text.substr(begin, text.find_first_of(",\" \n", begin) - begin);
        if (prefix == "kind=elf,sm=") name = "sm_" + name;
        if (prefix == "kind=ptx,sm=") name = "compute_" + name;
        out.insert(name);
      }
    }
    return out;
  }

  std::string help_;
};

TEST_F(WithNvcc, TheHelpNamesWhatTheListsName) {
  const std::vector<int> numbers = numbers_of({archs_of_nvcc(Version{1}, help_)});
  EXPECT_EQ(numbers, numbers_of({archs_of_nvcc(Version{1}, output_of("nvcc --list-gpu-code"))}));
  EXPECT_GE(numbers.size(), 5u);
}

TEST_F(WithNvcc, AllAndAllMajorAreNvccs) {
  for (const char* word : {"all", "all-major"}) {
    Reason reason{};
    const auto choice = choose_cuda_archs(
        {{{"--archs", word}}, {}, {archs_of_nvcc(Version{1}, help_)}, {}}, &reason);
    ASSERT_TRUE(choice);
    std::string arguments;
    for (const std::string& argument : gencode_arguments(choice->targets))
      arguments += " " + argument;
    const std::set<std::string> wanted = images(std::string("-arch=") + word);
    ASSERT_FALSE(wanted.empty());
    EXPECT_EQ(images(arguments), wanted) << word << ":" << arguments;
  }
}

}  // namespace
}  // namespace opdock
