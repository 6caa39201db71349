// Tests the table [build] of plugin.toml.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "manifest/manifest.h"
#include "support/temporary_folder.h"

namespace opdock::pack {
namespace {

using opdock_test::TemporaryFolder;

constexpr char kHead[] = R"(name = "axpy"
version = "0.1.0"
license = "Apache-2.0"
sources = ["axpy.cc", "axpy.cu", "axpy.hip"]
[[op]]
schema = "axpy(Tensor x) -> Tensor"
doc = "x"
shape = ["like x"]
devices = ["cpu", "cuda"]
dtypes = ["float32"]
[build]
)";
constexpr int kLine = 12;  // the first line below [build]

class BuildTable : public ::testing::Test {
 protected:
  BuildTable() {
    for (const char* name :
         {"axpy.cc", "axpy.cu", "axpy.hip", "in/a.h", "in/deep/b.h", "other/c.h"})
      folder_.write(name, "");
  }

  std::optional<Manifest> read(const std::string& build) {
    mistakes_.clear();
    return read_manifest(folder_.write("plugin.toml", kHead + build), &mistakes_);
  }
  // Returns "1:4: …, wanted …; …", with lines counted from the first below [build].
  std::string told() const {
    std::string text;
    for (const Reason& mistake : mistakes_) {
      const size_t at = mistake.found.find("plugin.toml:") + 12, end = mistake.found.find(':', at);
      const int line = std::stoi(mistake.found.substr(at, end - at)) - kLine + 1;
      text += (text.empty() ? "" : "; ") + std::to_string(line) + mistake.found.substr(end) +
              ", wanted " + mistake.wanted;
    }
    return text;
  }

  TemporaryFolder folder_;
  std::vector<Reason> mistakes_;
};

TEST_F(BuildTable, IsRead) {
  const std::optional<Manifest> manifest = read(R"(include = ["in", "./other/"]
defines = ["FAST", "SIZE=1 + 2", "EMPTY="]
flags = { cxx = ["-ffast-math"], gcc = ["-fno-tree-vectorize"], nvcc = ["--use_fast_math"] }
libraries = ["pkg-config:gtk+-3.0", "m", "stdc++"]
least-cuda-arch = "sm_80"
)");
  ASSERT_TRUE(manifest) << told();
  const BuildNeeds& build = manifest->build;
  using Texts = std::vector<std::string>;
  EXPECT_EQ(build.include, (Texts{"in", "./other/"}));
  EXPECT_EQ(build.defines, (Texts{"FAST", "SIZE=1 + 2", "EMPTY="}));
  EXPECT_EQ(build.flags.size(), 3u);
  EXPECT_EQ(build.flags.at("gcc"), Texts{"-fno-tree-vectorize"});
  EXPECT_EQ(build.packages(), Texts{"gtk+-3.0"});
  EXPECT_EQ(build.plain_libraries(), (Texts{"m", "stdc++"}));
  EXPECT_FALSE(build.libraries[1].by_pkg_config);
  EXPECT_EQ(build.least_cuda, 80);
  EXPECT_EQ(files_of_includes(build, folder_.path(), 100),
            (Texts{"in/", "in/a.h", "in/deep/", "in/deep/b.h", "other/", "other/c.h"}));
  EXPECT_EQ(files_of_includes(build, folder_.path(), 2).size(), 3u) << "and the second folder";
}

TEST_F(BuildTable, MayBeEmptyOrAbsent) {
  const std::optional<Manifest> manifest = read("");
  ASSERT_TRUE(manifest) << told();
  EXPECT_TRUE(manifest->build.include.empty() && manifest->build.libraries.empty());
  EXPECT_EQ(manifest->build.least_cuda, 0);
  EXPECT_TRUE(files_of_includes(manifest->build, folder_.path(), 100).empty());
}

TEST_F(BuildTable, TheLeastArchitectureIsWrittenInTwoWays) {
  for (const auto& [text, number] :
       {std::pair{"8.0", 80}, {"sm_80", 80}, {"12.1", 121}, {"sm_121", 121}}) {
    const auto manifest = read(std::string("least-cuda-arch = \"") + text + "\"\n");
    ASSERT_TRUE(manifest) << told();
    EXPECT_EQ(manifest->build.least_cuda, number);
  }
}

TEST_F(BuildTable, EachMistakeIsNamedWithItsPlace) {
  const std::pair<const char*, const char*> rows[] = {
      {"includes = [\"in\"]",
       "1:1: [build]: the unknown key \"includes\", wanted one of: include,"},
      {"include = \"in\"", "1:11: [build]: \"include\": string, wanted a list of texts"},
      {"include = [\"in\", \"none\"]",
       "1:18: [build]: \"include\": no folder \"none\", wanted one in "},
      {"include = [\"axpy.cc\"]", "1:12: [build]: \"include\": no folder \"axpy.cc\""},
      {"include = [\"in\", \"in\"]", "1:18: [build]: \"include\": \"in\" twice"},
      {"include = [\"in/../..\"]", "wanted a folder inside the plugin's folder"},
      {"include = [\"/usr/include\"]", "wanted a folder inside the plugin's folder"},
      {"include = [\".\"]", "wanted a folder inside the plugin's folder"},
      {"include = [\"in/..\"]", "wanted a folder inside the plugin's folder"},
      {"defines = [\"-DA\"]", "1:12: [build]: \"defines\": \"-DA\", wanted a macro, such as"},
      {"defines = [\"A B\"]", "wanted a macro"},
      {"defines = [\"=1\"]", "wanted a macro"},
      {"defines = [\"1A\"]", "wanted a macro"},
      {"defines = [\"A=\\n#define B\"]", "\"A=\\x0a#define B\", wanted a macro"},
      {"defines = [\"A=1\", \"A=2\"]", "1:19: [build]: \"defines\": \"A\" twice, wanted it once"},
      {"flags = [\"-O3\"]", "1:9: [build]: \"flags\": no table, wanted lists by compiler"},
      {"flags.cpp = [\"-O3\"]", "the unknown key \"cpp\", wanted one of: c, cxx, gcc, clang"},
      {"flags.cxx = \"-O3\"", "1:13: [build] \"flags\": \"cxx\": string, wanted a list of texts"},
      {"flags.cxx = [\"O3\"]", "1:14: [build] \"flags\": \"cxx\": \"O3\", wanted one argument"},
      {"flags.c = [\"-O3 -g\"]", "\"-O3 -g\", wanted one argument"},
      {"flags.cxx = [\"-march=native\"]", "wanted what every processor of this kind can run"},
      {"flags.gcc = [\"-mavx2\"]", "wanted what every processor of this kind can run"},
      {"flags.nvcc = [\"-gencode=arch=compute_80,code=sm_80\"]", "wanted the architectures in"},
      {"flags.nvcc = [\"-arch=sm_80\"]", "wanted the architectures in the list"},
      {"flags.hipcc = [\"--offload-arch=gfx90a\"]", "wanted the processors in the list"},
      {"libraries = [\"-lm\"]", "1:14: [build]: \"libraries\": \"-lm\", wanted a name, such as"},
      {"libraries = [\"libm.so\"]", "wanted a name"},
      {"libraries = [\"a b\"]", "wanted a name"},
      {"libraries = [\"/usr/lib/libm.a\"]", "wanted a name"},
      {"libraries = [\"pkg-config:\"]", "wanted a name"},
      {"libraries = [\"pkg-config:a >= 2\"]", "wanted a name"},
      {"libraries = [\"m\", \"m\"]", "1:19: [build]: \"libraries\": \"m\" twice"},
      {"least-cuda-arch = 8.0", "1:19: [build]: \"least-cuda-arch\": floating-point"},
      {"least-cuda-arch = \"8\"", "\"8\", wanted one architecture, such as \"8.0\" or \"sm_80\""},
      {"least-cuda-arch = \"Ampere\"", "wanted one architecture"},
      {"least-cuda-arch = \"8.0;9.0\"", "wanted one architecture"},
      {"least-cuda-arch = \"9.0a\"", "wanted one architecture"},
      {"least-cuda-arch = \"sm_90a\"", "wanted one architecture"},
      {"least-cuda-arch = \"compute_80\"", "wanted one architecture"},
      {"least-cuda-arch = \"gfx90a\"", "wanted one architecture"},
  };
  for (const auto& [text, wanted] : rows) {
    EXPECT_FALSE(read(std::string(text) + "\n")) << text;
    EXPECT_EQ(mistakes_.size(), 1u) << text << "\n" << told();
    EXPECT_NE(told().find(wanted), std::string::npos) << text << "\n" << told();
  }
}

// A setting without use would wait for sources that do not exist.
TEST_F(BuildTable, WhatHasNoUseIsAMistake) {
  const auto without = [&](const std::string& part, const std::string& build) {
    std::string text = kHead + build;
    text.erase(text.find(part), part.size());
    mistakes_.clear();
    EXPECT_FALSE(read_manifest(folder_.write("plugin.toml", text), &mistakes_));
    return told();
  };
  EXPECT_EQ(without(", \"axpy.cu\"", "flags.nvcc = [\"-O2\"]\n"),
            "1:14: [build] \"flags\": \"nvcc\": no .cu file, wanted one in \"sources\" for nvcc to "
            "compile");
  EXPECT_EQ(without(", \"axpy.hip\"", "flags.hipcc = [\"-O2\"]\n"),
            "1:15: [build] \"flags\": \"hipcc\": no .hip file, wanted one in \"sources\" for hipcc "
            "to compile");
  EXPECT_EQ(without(", \"cuda\"", "least-cuda-arch = \"8.0\"\n"),
            "1:19: [build]: \"least-cuda-arch\": no op for it, wanted one with \"cuda\" in "
            "\"devices\"");
}

}  // namespace
}  // namespace opdock::pack
