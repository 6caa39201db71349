// Tests what can go wrong while an op is resolved: each case has its code, the host stays alive,
// another plugin is still served, and the next attempt succeeds once the cause is gone.
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "chain_fixture.h"
#include "support/described_gpu.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;

// One GPU for the whole program, because the first probe in a process decides which GPUs there are.
class WithGpu : public ::testing::Environment {
  void SetUp() override { gpu_.emplace(); }
  void TearDown() override { gpu_.reset(); }
  std::optional<opdock_test::DescribedGpu> gpu_;
};
[[maybe_unused]] const auto* const with_gpu = ::testing::AddGlobalTestEnvironment(new WithGpu);

class FaultFixture : public ChainFixture {
 public:
  using ChainFixture::add_source;
  using ChainFixture::path;
  using ChainFixture::remove_tool;
  using ChainFixture::tool;
  using ChainFixture::top_;
};

struct FaultCase {
  const char* name;
  const char* code;
  void (*break_it)(FaultFixture& fixture);
  void (*repair)(FaultFixture& fixture);
  const char* step = "build";
  bool before_scan = true;  // otherwise after the runtime has listed the plugins
};

void PrintTo(const FaultCase& row, std::ostream* out) {
  *out << row.name;
}

constexpr char kMeson[] = "/bin/mkdir -p \"$4\"";
std::string ninja_that_copies(const std::string& name) {
  return "/bin/mkdir -p \"$2/plugins\"; /bin/cp " + case_path(name) + " \"$2/plugins/good.so\"";
}
void good_tools(FaultFixture& w) {
  w.tool("c++", "echo 'c++ 1.2.3'");
  w.tool("cc", "echo 'cc 1.2.3'");
  w.tool("meson", kMeson);
  w.tool("ninja", ninja_that_copies("good"));
}
// Failures are remembered per input. A fix of a tool that is not an input must also change the
// compiler's version, so that the build is tried again.
void other_tools(FaultFixture& w) {
  good_tools(w);
  w.tool("c++", "echo 'c++ 1.2.4'");
}
// Replaces the source plugin "good" by another one, of which this case comes out.
void build_case(FaultFixture& w, const std::string& name) {
  fs::rename(w.path("plugins/good"), w.path("home/good"));
  w.add_source(name, "1.0", "", "good");
  w.tool("ninja", "/bin/mkdir -p \"$2/plugins\"; /bin/cp " + case_path(name) + " \"$2/plugins/" +
                      name + ".so\"");
}
void build_good_again(FaultFixture& w) {
  fs::remove_all(w.path("plugins/good"));
  fs::rename(w.path("home/good"), w.path("plugins/good"));
  good_tools(w);
}

const FaultCase kCases[] = {
    {"no_cxx", "build-no-compiler", [](FaultFixture& w) { w.remove_tool("c++"); }, good_tools},
    {"no_c", "build-no-compiler", [](FaultFixture& w) { w.remove_tool("cc"); }, good_tools},
    {"no_meson", "build-no-meson", [](FaultFixture& w) { w.remove_tool("meson"); }, good_tools},
    {"no_ninja", "build-no-ninja", [](FaultFixture& w) { w.remove_tool("ninja"); }, good_tools},
    {"no_tools_at_all", "build-no-compiler",
     [](FaultFixture& w) { setenv("PATH", w.path("home").c_str(), 1); },
     [](FaultFixture& w) { setenv("PATH", w.path("bin").c_str(), 1); }},
    {"compiler_says_nothing", "build-no-compiler", [](FaultFixture& w) { w.tool("c++", "exit 3"); },
     good_tools},
    {"source_does_not_compile", "build-failed",
     [](FaultFixture& w) { w.tool("ninja", "echo 'code.c:1:1: error: no'; exit 1"); }, other_tools},
    {"meson_fails", "build-failed",
     [](FaultFixture& w) { w.tool("meson", "echo 'meson.build:1:0: ERROR: no'; exit 1"); },
     other_tools},
    {"another_plugin_comes_out", "build-result",
     [](FaultFixture& w) { w.tool("ninja", ninja_that_copies("good_b")); }, other_tools},
    {"nothing_comes_out", "build-result",
     [](FaultFixture& w) { w.tool("ninja", "/bin/mkdir -p \"$2/plugins\""); }, other_tools},
    {"a_text_comes_out", "build-result",
     [](FaultFixture& w) {
       w.tool("ninja", "/bin/mkdir -p \"$2/plugins\"; echo text > \"$2/plugins/good.so\"");
     },
     other_tools},
    {"cache_written_by_all", "cache-unusable",
     [](FaultFixture& w) {
       fs::create_directory(w.path("cache"));
       chmod(w.path("cache").c_str(), 0777);
     },
     [](FaultFixture& w) { chmod(w.path("cache").c_str(), 0700); }},
    {"cache_is_a_file", "cache-unusable", [](FaultFixture& w) { w.top_.write("cache", "no"); },
     [](FaultFixture& w) { fs::remove(w.path("cache")); }},
    {"no_place_for_a_cache", "cache-unusable",
     [](FaultFixture&) {
       unsetenv("OPDOCK_CACHE_DIR");
       unsetenv("HOME");
     },
     [](FaultFixture& w) {
       setenv("OPDOCK_CACHE_DIR", w.path("cache").c_str(), 1);
       setenv("HOME", w.path("home").c_str(), 1);
     }},
    // The plugin passes the checks; then a symbol is missing that only the loader looks up.
    {"built_plugin_refuses_to_load", "load-failed",
     [](FaultFixture& w) { build_case(w, "missing_symbol"); }, build_good_again},
    {"init_fails", "init-failed", [](FaultFixture& w) { build_case(w, "init_status_2"); },
     build_good_again},
    {"source_goes_after_the_scan", "source-changed",
     [](FaultFixture& w) { fs::rename(w.path("plugins/good"), w.path("home/gone")); },
     [](FaultFixture& w) { fs::rename(w.path("home/gone"), w.path("plugins/good")); }, "build",
     false},
    {"arch_list_is_nonsense", "arch-list-invalid",
     [](FaultFixture& w) {
       setenv("TORCH_CUDA_ARCH_LIST", "twelve", 1);
       std::ofstream(w.path("plugins/good/plugin.toml"), std::ios::app) << "";
       const std::string toml = w.path("plugins/good/plugin.toml");
       std::ifstream in(toml);
       std::string text((std::istreambuf_iterator<char>(in)), {});
       text.replace(text.find("[\"cpu\"]"), 7, "[\"cpu\", \"cuda\"]");
       std::ofstream(toml) << text;
     },
     [](FaultFixture& w) {
       unsetenv("TORCH_CUDA_ARCH_LIST");
       w.add_source("good");
     }},
};

class Faults : public FaultFixture, public ::testing::WithParamInterface<FaultCase> {};

TEST_P(Faults, HaveTheirCodeAndPass) {
  const FaultCase& row = GetParam();
  add_source("good");
  tool("ninja", ninja_that_copies("good"));
  top_.add("good_b", "plugins/good_b.so");
  std::string op = "good";
  if (row.before_scan) row.break_it(*this);
  if (!fs::exists(path("plugins/good/plugin.toml"))) FAIL() << "the case removed the source";
  {
    std::ifstream toml(path("plugins/good/plugin.toml"));
    std::string line;
    std::getline(toml, line);
    op = line.substr(8, line.size() - 9);
  }
  const RuntimePtr runtime = this->runtime();
  if (!row.before_scan) {
    explain(runtime.get(), op);
    row.break_it(*this);
  }
  const Outcome refused = resolve(runtime.get(), op);
  EXPECT_EQ(refused.status, OPDOCK_INCOMPATIBLE) << refused.text;
  EXPECT_TRUE(refused.has(row.code)) << refused.reasons.dump(2);
  EXPECT_NE(refused.text.find(row.code), std::string::npos) << refused.text;
  EXPECT_EQ(outcome(explain(runtime.get(), op), row.step), "failed");
  EXPECT_EQ(resolve(runtime.get(), "good_b").status, OPDOCK_OK);
  row.repair(*this);
  const Outcome next = resolve(this->runtime().get(), "good");
  EXPECT_EQ(next.status, OPDOCK_OK) << next.text;
}

INSTANTIATE_TEST_SUITE_P(Row, Faults, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

class Fault : public ChainFixture {};

std::string published(const ChainFixture& fixture, const std::string& top) {
  (void)fixture;
  for (const auto& entry : fs::recursive_directory_iterator(top + "/cache")) {
    if (entry.path().filename() == "good.so") return entry.path().string();
  }
  ADD_FAILURE() << "nothing was published";
  return "";
}

TEST_F(Fault, AnEntryThatWasCorruptedIsBuiltAgain) {
  add_source("good");
  ASSERT_EQ(resolve(runtime().get(), "good").status, OPDOCK_OK);
  const std::string file = published(*this, path());
  chmod(file.c_str(), 0700);
  fs::remove(file);
  std::ofstream(file) << "not what was published";
  const Outcome next = resolve(runtime().get(), "good");
  EXPECT_EQ(next.status, OPDOCK_OK) << next.text;
  EXPECT_EQ(builds(), 2u);
}

TEST_F(Fault, AnEntryWhosePluginIsGoneIsBuiltAgain) {
  add_source("good");
  ASSERT_EQ(resolve(runtime().get(), "good").status, OPDOCK_OK);
  const std::string file = published(*this, path());
  chmod(fs::path(file).parent_path().c_str(), 0700);
  fs::remove(file);
  const Outcome next = resolve(runtime().get(), "good");
  EXPECT_EQ(next.status, OPDOCK_OK) << next.text;
  EXPECT_EQ(builds(), 2u);
}

TEST_F(Fault, AFailureIsToldAgainWithoutBuilding) {
  add_source("good");
  tool("ninja", "echo ran >> $TOP/builds; exit 1");
  EXPECT_EQ(resolve(runtime().get(), "good").status, OPDOCK_INCOMPATIBLE);
  const Outcome again = resolve(runtime().get(), "good");
  EXPECT_TRUE(again.has("build-failed")) << again.reasons.dump(2);
  EXPECT_TRUE(again.has("build-remembered")) << again.reasons.dump(2);
  EXPECT_EQ(builds(), 1u);
}

TEST_F(Fault, AnotherDeviceIsNotServed) {
  add_source("good");
  top_.add("good_b", "plugins/good_b.so");
  const RuntimePtr runtime = this->runtime();
  for (const char* op : {"good", "good_b"}) {
    const Outcome refused = resolve(runtime.get(), op, {OPDOCK_ROCM, 0});
    EXPECT_EQ(refused.status, OPDOCK_INCOMPATIBLE);
    EXPECT_TRUE(refused.has("device-not-served")) << refused.reasons.dump(2);
    EXPECT_EQ(resolve(runtime.get(), op).status, OPDOCK_OK);
  }
}

TEST_F(Fault, WithoutAGpuOfTheKindNothingIsTriedAndOneReasonIsGiven) {
  const std::string toml = add_source("good") + "/plugin.toml";
  std::string text = opdock_test::contents(toml);
  text.replace(text.find("[\"cpu\"]"), 7, "[\"cpu\", \"cuda\"]");
  std::ofstream(toml) << text;
  const Outcome refused = resolve(runtime().get(), "good", {OPDOCK_CUDA, 0});
  EXPECT_EQ(refused.status, OPDOCK_INCOMPATIBLE);
  EXPECT_NE(refused.text.find("none is tried"), std::string::npos) << refused.text;
  ASSERT_EQ(refused.reasons.size(), 1u) << refused.reasons.dump(2);
  EXPECT_TRUE(refused.has("no-driver") || refused.has("no-gpu")) << refused.reasons.dump(2);
  EXPECT_EQ(builds(), 0u);
}

TEST_F(Fault, ASourceWithAnotherSchemaDoesNotStandInForTheBinary) {
  top_.add("good", "plugins/good.so");
  const std::string source = add_source("good");
  std::ifstream in(source + "/plugin.toml");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  text.replace(text.find("good(Tensor x)"), 14, "good(Tensor z)");
  top_.write("plugins/good/plugin.toml", text);
  top_.write("plugins/good/plugin.toml", text.replace(text.find("like x"), 6, "like z"));
  const RuntimePtr runtime = this->runtime();
  const Outcome refused = resolve(runtime.get(), "good", {OPDOCK_ROCM, 0});
  EXPECT_TRUE(refused.has("schema-differs")) << refused.reasons.dump(2);
  EXPECT_EQ(resolve(runtime.get(), "good").status, OPDOCK_OK);
  EXPECT_EQ(builds(), 0u);
}

TEST_F(Fault, WhatIsNotTrustedIsNeverBuiltNorItsReferenceRun) {
  add_source("good", "1.0", "reference = \"reference.py\"\n");
  top_.write("plugins/good/reference.py", "def good(x):\n    return x\n");
  chmod(path("plugins/good/code.c").c_str(), 0666);
  Program program;
  program.has_runner = true;
  const std::string places = path("plugins");
  opdock_options options{};
  options.struct_size = sizeof options;
  options.package_path = places.c_str();  // a place without the user's consent
  opdock_runtime* made = nullptr;
  ASSERT_EQ(opdock_runtime_create(&options, &made, nullptr, 0), OPDOCK_OK);
  const RuntimePtr runtime(made);
  const Outcome refused = resolve(runtime.get(), "good");
  EXPECT_EQ(refused.status, OPDOCK_INCOMPATIBLE);
  EXPECT_TRUE(refused.has("untrusted-writable")) << refused.reasons.dump(2);
  EXPECT_EQ(builds(), 0u);
}

TEST_F(Fault, AReferenceThatCannotBeOpenedIsAReason) {
  add_source("good");
  tool("ninja", "exit 1");
  Program program;
  program.has_runner = true;
  program.references["good"] = OPDOCK_NOT_FOUND;
  const RuntimePtr runtime = this->runtime(&program);
  const Outcome refused = resolve(runtime.get(), "good");
  EXPECT_EQ(refused.status, OPDOCK_INCOMPATIBLE);
  EXPECT_TRUE(refused.has("reference-unusable"));
  EXPECT_NE(refused.text.find("no torch here"), std::string::npos) << refused.text;
  program.references["good"] = OPDOCK_OK;
  EXPECT_EQ(resolve(runtime.get(), "good").status, OPDOCK_OK);
}

TEST_F(Fault, AProgramThatStopsWhileTheReferenceIsOpenedIsCancelled) {
  add_source("good");
  tool("ninja", "exit 1");
  Program program;
  program.has_runner = true;
  program.references["good"] = OPDOCK_CANCELLED;
  const RuntimePtr runtime = this->runtime(&program);
  EXPECT_EQ(resolve(runtime.get(), "good").status, OPDOCK_CANCELLED);
  program.references["good"] = OPDOCK_OK;
  EXPECT_EQ(resolve(runtime.get(), "good").status, OPDOCK_OK);
}

TEST_F(Fault, NoReferenceIsAReason) {
  add_source("good");
  tool("ninja", "exit 1");
  Program program;
  EXPECT_TRUE(resolve(runtime(&program).get(), "good").has("reference-runner"));
  program.has_runner = true;
  EXPECT_TRUE(resolve(runtime(&program).get(), "good").has("reference-missing"));
}

TEST_F(Fault, CodeThatCannotBeCompiledForTheCpuIsNoStep) {
  top_.add("with_image", "plugins/with_image.so");
  const RuntimePtr runtime = this->runtime();
  const Outcome refused = resolve(runtime.get(), "with_image", {OPDOCK_CUDA, 0});
  EXPECT_NE(refused.status, OPDOCK_OK);
  EXPECT_EQ(resolve(runtime.get(), "with_image").status, OPDOCK_OK);
}

}  // namespace
}  // namespace opdock::testing
