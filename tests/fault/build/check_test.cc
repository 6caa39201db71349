// Tests builds that are refused in advance: each gives its code before Meson or a compiler of the
// plugin has started, and the next attempt succeeds.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>
#include <iterator>

#include "build_fixture.h"

namespace opdock::testing {
namespace {

// A fake nvcc: it answers --version, --help, and --dryrun with a toolkit whose header checks the
// host compiler's version.
constexpr char kNvcc[] = R"sh(case "$*" in
*--version*) echo 'Cuda compilation tools, release VERSION, V VERSION.88' | sed 's/V /V/' ;;
*--help*) echo "--gpu-code <arch>"; echo "Allowed values: 'sm_75','sm_80','sm_90','sm_90a','sm_120'." ;;
*--dryrun*) echo "#$ TOP=$TOP/toolkit" ;;
*) echo compiled >> $TOP/compiled; exit 1 ;;
esac)sh";

constexpr char kHipcc[] = R"sh(case "$*" in
*--version*) echo 'HIP version: 5.2.21153-0' ;;
*gfx999*) echo "clang: error: invalid target ID 'gfx999'; format is a processor name"; exit 1 ;;
*) exit 0 ;;
esac)sh";

class Checked : public BuildFixture {
 protected:
  Checked() {
    // The fake nvcc runs these tools.
    for (const char* name : {"sed", "head", "tr", "sleep"})
      tool(name, std::string("exec /bin/") + name + " \"$@\"");
    nvcc("13.0");
    tool("hipcc", kHipcc);
    setenv("CUDACXX", (top + "/bin/nvcc").c_str(), 1);  // hides an nvcc of this machine
    setenv("HIPCXX", (top + "/bin/hipcc").c_str(), 1);
    write("toolkit/include/crt/host_config.h",
          "#if __GNUC__ > 15\n#error -- unsupported GNU version! gcc versions later than 15\n"
          "#endif\n");
    tool("c++", "case $1 in -dumpfullversion) echo 12.2.0 ;; *) echo 'c++ (GCC) 12.2.0' ;; esac");
    plugin("op.cu", "cuda");
    options.cuda_archs = "9.0";
  }

  ~Checked() override {
    unsetenv("CUDACXX");
    unsetenv("HIPCXX");
  }

  void nvcc(const std::string& version) {
    std::string body = kNvcc;
    for (size_t at; (at = body.find("VERSION")) != body.npos;) body.replace(at, 7, version);
    tool("nvcc", body);
  }

  void plugin(const std::string& source, const std::string& device) {
    write("source/" + source, "int nothing;\n");
    write("source/plugin.toml",
          "name = \"noop\"\nversion = \"0.1.0\"\nlicense = \"Apache-2.0\"\nsources = [\"noop.cc\", "
          "\"" +
              source +
              "\"]\n[[op]]\nschema = \"noop(Tensor x) -> ()\"\ndoc = \"Does nothing.\"\n"
              "devices = [\"" +
              device + "\"]\ndtypes = [\"float32\"]\n");
  }

  // Expects a refusal before the build starts anything.
  void expect_refused(Code code, const std::string& found) {
    const size_t before = lines("setups");
    EXPECT_EQ(build().entry, nullptr);
    EXPECT_TRUE(failed_with(code)) << text_of_reasons();
    EXPECT_NE(text_of_reasons().find(found), std::string::npos) << text_of_reasons();
    EXPECT_EQ(lines("setups"), before) << "Meson was started";
    EXPECT_EQ(lines("compiled"), 0u);
    EXPECT_TRUE(left_nothing());
  }
  void expect_built() {
    EXPECT_NE(build().entry, nullptr) << text_of_reasons();
    EXPECT_TRUE(reasons.empty()) << text_of_reasons();
  }
};

TEST_F(Checked, AnArchitectureThatNvccDoesNotKnow) {
  options.cuda_archs = "8.0;8.9;10.0+PTX";
  expect_refused(Code::kBuildArch, "8.9, 10.0+PTX");
  options.cuda_archs = "8.0;9.0a;12.0+PTX";
  expect_built();
}

TEST_F(Checked, AHostCompilerThatNvccRefuses) {
  const std::string good = read("bin/c++");
  tool("c++", "case $1 in -dumpfullversion) echo 16.1.0 ;; *) echo 'c++ (GCC) 16.1.0' ;; esac");
  expect_refused(Code::kBuildHostCompiler, "g++ 16.1.0");
  EXPECT_NE(text_of_reasons().find("gcc 15 or older"), std::string::npos) << text_of_reasons();
  write("bin/c++", good);
  expect_built();
}

TEST_F(Checked, ATooOldNvcc) {
  nvcc("11.4");
  expect_refused(Code::kToolTooOld, "nvcc 11.4");
  nvcc("13.0");
  expect_built();
}

TEST_F(Checked, AProcessorThatHipccDoesNotKnow) {
  plugin("op.hip", "rocm");
  options.cuda_archs = "";
  options.hip_archs = "gfx90a;gfx999";
  expect_refused(Code::kBuildArch, "gfx999 in --hip-archs");
  options.hip_archs = "gfx90a";
  expect_built();
}

TEST_F(Checked, AGpuThatIsNewerThanNvccIsBuiltForWithAWarning) {
  options.cuda_archs = "13.0";
  expect_refused(Code::kBuildArch, "13.0");
  options.gpu_archs = "13.0";
  // Records what reaches the wrapper project, which passes it to opdock-pack.
  tool("meson",
       "while [ \"$1\" != --native-file ]; do shift; done; while read -r line; do echo "
       "\"$line\" >> $TOP/native; done < \"$2\"; [ -d build ] || /bin/mkdir build");
  const BuildResult result = build();
  ASSERT_NE(result.entry, nullptr) << text_of_reasons();
  ASSERT_EQ(result.warnings.size(), 1u);
  EXPECT_EQ(result.warnings[0].code, Code::kArchPtx);
  EXPECT_NE(result.warnings[0].advice.find("12.0+PTX"), std::string::npos);
  EXPECT_NE(read("native").find("gpu-archs = '13.0'"), std::string::npos) << read("native");
  std::ifstream log(result.log_path);
  const std::string text{std::istreambuf_iterator<char>(log), {}};
  EXPECT_NE(text.find("opdock: warning: arch-ptx: a GPU of 13.0"), std::string::npos) << text;
  EXPECT_TRUE(build().warnings.empty()) << "it was in the cache";
}

TEST_F(Checked, AnNvccThatSaysNothingIsTried) {
  tool("nvcc", "echo what");
  const BuildResult result = build();
  ASSERT_NE(result.entry, nullptr) << text_of_reasons();
  ASSERT_EQ(result.warnings.size(), 1u);
  EXPECT_EQ(result.warnings[0].code, Code::kToolUnknown);
}

TEST_F(Checked, ARefusalIsNotRememberedAndAskedOfTheNewCompiler) {
  options.cuda_archs = "10.0";
  expect_refused(Code::kBuildArch, "10.0");
  std::string body = read("bin/nvcc");
  body.replace(body.find("'sm_120'"), 8, "'sm_100','sm_120'");
  write("bin/nvcc", body);
  expect_built();
}

TEST_F(Checked, WithoutDeviceCodeNothingIsAsked) {
  write("source/plugin.toml", [](std::string text) {
    text.replace(text.find(", \"op.cu\""), 9, "");
    return text;
  }(read("source/plugin.toml")));
  tool("nvcc", "echo asked >> $TOP/asked");
  expect_built();
  EXPECT_EQ(lines("asked"), 0u);
}

TEST_F(Checked, CheckingTellsTheSameAndBuildsNothing) {
  options.cuda_archs = "10.0";
  std::vector<Reason> against = check_build(manifest(), options);
  ASSERT_EQ(against.size(), 1u);
  EXPECT_EQ(against[0].code, Code::kBuildArch);
  remove_tool("nvcc");
  against = check_build(manifest(), options);
  EXPECT_TRUE(std::any_of(against.begin(), against.end(),
                          [](const Reason& reason) { return reason.code == Code::kBuildNoNvcc; }));
  EXPECT_EQ(lines("setups"), 0u);
}

}  // namespace
}  // namespace opdock::testing
