// Builds a few plugins with the real tools of this machine; a test whose tool is missing is skipped
// with a message.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/installed.h"
#include "build_fixture.h"
#include "note/file_facts.h"

namespace opdock::testing {
namespace {

constexpr char kToml[] = R"toml(name = "axpy"
version = "1.2.3"
license = "Apache-2.0"
sources = ["SOURCES"]

[[op]]
schema = "axpy(Tensor x, *, float a=1.0) -> Tensor"
doc = "a * x"
shape = ["like x"]
devices = ["DEVICE"]
dtypes = ["float32"]
)toml";

constexpr char kHost[] = R"cc(#include <opdock/plugin.hpp>

#include "scale.h"

                              static void plan(opdock::Plan& plan, opdock::Tensor x, double) {
                                plan.output(x.like());
                              }
                              static void run(opdock::Call&, opdock::Results, opdock::Tensor, double a) {
                                scale(nullptr, a, 0);
                              }
                              OPDOCK_OP(axpy, plan, nullptr, run)
)cc";

constexpr char kKernel[] = R"cc(#include "scale.h"
                                template <class T>
                                __global__ void kernel(T* x, T a, int n) {
                                  const int i = blockIdx.x * blockDim.x + threadIdx.x;
                                  if (i < n) x[i] *= a;
                                }
                                void scale(float* x, double a, int n) {
                                  kernel<<<dim3(1), dim3(64)>>>(x, float(a), n);
                                }
)cc";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

class Real : public BuildFixture {
 protected:
  void SetUp() override {
    if (!use_real_tools()) GTEST_SKIP() << "found no meson or no ninja";
  }

  // Writes the plugin axpy with the second source `second` into the folder `name`.
  Manifest plugin(const std::string& name, const std::string& device, const std::string& second,
                  const std::string& text) {
    write(name + "/plugin.toml",
          replaced(replaced(kToml, "SOURCES", "axpy.cc\", \"" + second), "DEVICE", device));
    write(name + "/axpy.cc", kHost);
    write(name + "/scale.h", "void scale(float* x, double a, int n);\n");
    write(name + "/" + second, text);
    return manifest_at(top + "/" + name);
  }
  Manifest cpu_plugin(const std::string& name) {
    return plugin(name, "cpu", "scale.cc",
                  "#include \"scale.h\"\nvoid scale(float*, double, int) { (void)__FILE__; }\n");
  }
  BuildResult make(const Manifest& manifest) {
    reasons.clear();
    return build_plugin(manifest, options, cache.get(), &watcher, &reasons);
  }
  static std::string bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  static FileFacts facts(const std::string& path) {
    FILE* file = std::fopen(path.c_str(), "rb");
    const FileFacts found =
        read_file_facts(fileno(file), std::filesystem::file_size(path), path, Depth::kInspect);
    std::fclose(file);
    return found;
  }
  // Whether the reasons say that this machine lacks a compiler.
  bool lacks(Code code) const { return failed_with(code); }
};

TEST_F(Real, SameInputsGiveTheSameBytesWhereverTheyLie) {
  const BuildResult one = make(cpu_plugin("one"));
  ASSERT_NE(one.entry, nullptr) << text_of_reasons();
  PlainCache elsewhere(top + "/it's \"the\" größe $HOME cache");
  std::vector<Reason> why;
  const Manifest other = cpu_plugin("an other's \"folder\" ü");
  const BuildResult two = build_plugin(other, options, &elsewhere, nullptr, &why);
  ASSERT_NE(two.entry, nullptr) << (why.empty() ? "" : to_text(why.front()));
  EXPECT_EQ(bytes(one.plugin), bytes(two.plugin));
  EXPECT_EQ(bytes(one.plugin).find(top), std::string::npos);
  EXPECT_EQ(facts(one.plugin).exports, std::vector<std::string>{"opdock_plugin_v0"});
  EXPECT_EQ(orphans(), std::vector<std::string>());
}

TEST_F(Real, ErrorsHaveTheUsersFileAndLine) {
  Manifest broken = plugin("broken", "cpu", "scale.cc", "\nint f() { return nothing; }\n");
  EXPECT_EQ(make(broken).entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildFailed));
  EXPECT_NE(text_of_reasons().find(top + "/broken/scale.cc:2:18: error:"), std::string::npos)
      << text_of_reasons();
  broken = plugin("broken", "cpu", "scale.cc", "#include <acme/rocket.h>\n");
  EXPECT_EQ(make(broken).entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildHeaderMissing)) << text_of_reasons();
  broken = plugin("broken", "cpu", "scale.cc", "// defines nothing\n");
  EXPECT_EQ(make(broken).entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildFailed)) << text_of_reasons();
  EXPECT_NE(text_of_reasons().find("undefined reference to"), std::string::npos)
      << text_of_reasons();
}

TEST_F(Real, ErrorsInMesonBuildHaveTheUsersFileAndLine) {
  const Manifest broken = cpu_plugin("broken");
  write("broken/meson.build", "opdock_plugins += nothing\n");
  EXPECT_EQ(make(broken).entry, nullptr);
  EXPECT_NE(text_of_reasons().find(top + "/broken/meson.build:1:"), std::string::npos)
      << text_of_reasons();
}

TEST_F(Real, AFileThatNothingNamesIsToldOf) {
  write("one/macro.h", "#define SCALE 1\n");
  const Manifest computed = plugin("one", "cpu", "scale.cc",
                                   "#define HEADER \"macro.h\"\n#include HEADER\n"
                                   "void scale(float*, double, int) {}\n");
  EXPECT_EQ(make(computed).entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildHeaderMissing)) << text_of_reasons();
  EXPECT_NE(text_of_reasons().find("Name macro.h in plugin.toml's `sources`"), std::string::npos)
      << text_of_reasons();
  write("two/data.in", "");
  const Manifest data = cpu_plugin("two");
  write("two/meson.build",
        "foreach name : ['data']\n  files(name + '.in')\nendforeach\n"
        "opdock_plugins += [{'name': 'axpy', 'toml': files('plugin.toml'),\n"
        "  'sources': files('axpy.cc', 'scale.cc')}]\n");
  EXPECT_EQ(make(data).entry, nullptr);
  EXPECT_NE(text_of_reasons().find("Name data.in in plugin.toml's `sources`"), std::string::npos)
      << text_of_reasons();
  std::string toml = read("two/plugin.toml");
  write("two/plugin.toml", replaced(toml, "\"axpy.cc\"", "\"axpy.cc\", \"data.in\""));
  EXPECT_NE(make(manifest_at(top + "/two")).entry, nullptr) << text_of_reasons();
}

TEST_F(Real, CompilerFromAnEmptyPathIsMissedAtOnce) {
  setenv("PATH", "", 1);
  EXPECT_EQ(make(cpu_plugin("one")).entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildNoCompiler)) << text_of_reasons();
}

TEST_F(Real, StoppedWhileCompilingLeavesNoCompiler) {
  class Stopper : public Progress {
   public:
    void step(std::string_view text, double) override { compiling |= text.ends_with("steps"); }
    bool cancelled() override { return compiling; }
    bool compiling = false;
  } stopper;
  const Manifest slow = cpu_plugin("slow");
  EXPECT_EQ(build_plugin(slow, options, cache.get(), &stopper, &reasons).entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kCancelled)) << text_of_reasons();
  EXPECT_EQ(orphans(), std::vector<std::string>());
  EXPECT_TRUE(left_nothing());
}

TEST_F(Real, CudaFile) {
  options.cuda_archs = "9.0a;10.0+PTX";
  const Manifest cuda = plugin("cuda", "cuda", "scale.cu", kKernel);
  const BuildResult result = make(cuda);
  if (lacks(Code::kBuildNoNvcc)) GTEST_SKIP() << text_of_reasons();
  ASSERT_NE(result.entry, nullptr) << text_of_reasons();
  const FileFacts found = facts(result.plugin);
  EXPECT_EQ(found.exports, std::vector<std::string>{"opdock_plugin_v0"});
  for (const std::string& library : found.needed) {
    EXPECT_EQ(library.find("cuda"), std::string::npos) << library;
  }
  std::vector<std::string> archs;
  for (const DeviceImage& image : found.images) archs.push_back(image.arch);
  std::sort(archs.begin(), archs.end());
  EXPECT_EQ(archs, (std::vector<std::string>{"compute_100", "sm_100", "sm_90a"}));
  EXPECT_EQ(bytes(result.plugin).find("tmpxft"), std::string::npos) << "names of temporary files";

  options.cuda_archs = "19.0";
  EXPECT_EQ(make(cuda).entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildArch)) << text_of_reasons();
  EXPECT_NE(text_of_reasons().find("+PTX"), std::string::npos) << text_of_reasons();

  // the architecture of a GPU in this machine, not one that the user requested
  options.gpu_archs = "19.0";
  const BuildResult newer = make(cuda);
  ASSERT_NE(newer.entry, nullptr) << text_of_reasons();
  size_t ptx = 0;
  for (const DeviceImage& image : facts(newer.plugin).images) ptx += image.kind == ImageKind::kPtx;
  EXPECT_EQ(ptx, 1u);
  ASSERT_FALSE(newer.warnings.empty());
  EXPECT_EQ(newer.warnings[0].code, Code::kArchPtx);
}

TEST_F(Real, HipFile) {
  options.hip_archs = "gfx90a;gfx1030";
  std::string kernel = "#include <hip/hip_runtime.h>\n";
  const BuildResult result = make(plugin("hip", "rocm", "scale.hip", kernel + kKernel));
  if (lacks(Code::kBuildNoHipcc)) GTEST_SKIP() << text_of_reasons();
  ASSERT_NE(result.entry, nullptr) << text_of_reasons();
  const FileFacts found = facts(result.plugin);
  EXPECT_EQ(found.exports, std::vector<std::string>{"opdock_plugin_v0"});
  std::vector<std::string> archs;
  for (const DeviceImage& image : found.images) archs.push_back(image.arch);
  std::sort(archs.begin(), archs.end());
  EXPECT_EQ(archs, (std::vector<std::string>{"gfx1030", "gfx90a"}));

  options.hip_archs = "gfx90a;gfx99f";
  EXPECT_EQ(make(plugin("hip", "rocm", "scale.hip", kernel + kKernel)).entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildArch)) << text_of_reasons();
  EXPECT_NE(text_of_reasons().find("found gfx99f in"), std::string::npos) << text_of_reasons();
}

}  // namespace
}  // namespace opdock::testing
