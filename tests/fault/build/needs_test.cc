// Tests plugin.toml's [build] section: its settings reach the compilers and the linker, a missing
// library is reported before anything starts, and any change causes a new build.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "build_fixture.h"
#include "opdock/plugin.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;

class Needs : public BuildFixture {
 protected:
  void declare(const std::string& build, const std::string& device = "cpu") {
    write("source/plugin.toml", noop_toml(device) + build);
  }
  std::vector<CacheField> fields() { return build_request(manifest(), options)->fields; }
  std::string field(const std::string& name) {
    for (const CacheField& one : fields())
      if (one.name == name) return one.value;
    return "absent";
  }
  // Expects a refusal before the build starts anything, and that no failure is remembered.
  void expect_refused(Code code, const std::string& found) {
    EXPECT_EQ(build().entry, nullptr);
    ASSERT_TRUE(failed_with(code)) << text_of_reasons();
    EXPECT_NE(text_of_reasons().find(found), std::string::npos) << text_of_reasons();
    EXPECT_EQ(lines("setups"), 0u) << "Meson was started";
    EXPECT_TRUE(left_nothing());
  }
};

// ---- with the real tools of this machine

class NeedsReal : public Needs {
 protected:
  void SetUp() override {
    if (!use_real_tools()) GTEST_SKIP() << "found no meson or no ninja";
    if (std::system("pkg-config --version >/dev/null 2>&1") != 0)
      GTEST_SKIP() << "found no pkg-config";
    if (std::system("echo '#include <crypt.h>' | c++ -fsyntax-only -x c++ - 2>/dev/null") != 0)
      GTEST_SKIP() << "found no crypt.h";
    // A library with its own header that only its .pc file makes reachable.
    write("lib/triple.c", "#include <triple.h>\nint triple(int x) { return TRIPLE * x; }\n");
    write("lib/in clude/triple.h", "#define TRIPLE 3\n");
    const std::string made =
        "cd " + top + "/lib && cc -c -fPIC '-Iin clude' triple.c && ar rc libtriple.a triple.o";
    ASSERT_EQ(std::system(made.c_str()), 0);
    write("lib/triple.pc", "Name: triple\nDescription: triples\nVersion: 4.5\nCflags: \"-I" + top +
                               "/lib/in clude\"\nLibs: -L" + top + "/lib -ltriple\n");
    setenv("PKG_CONFIG_PATH", (top + "/lib").c_str(), 1);
    write("source/in/deep/inner.h", "#define INNER 1000\n");
    // crypt() is in a library that nothing else links.
    write("source/noop.cc", R"x(#include <crypt.h>
#include <deep/inner.h>
#include <opdock/plugin.hpp>
#include <triple.h>

#ifndef __FAST_MATH__
#error "-ffast-math did not arrive"
#endif
#ifdef __OPTIMIZE_SIZE__
#error "for another compiler"
#endif
extern "C" int triple(int);
static void plan(opdock::Plan&, opdock::Tensor) {}
static void run(opdock::Call&, opdock::Results, opdock::Tensor) {}
OPDOCK_OP(noop, plan, nullptr, run)
extern "C" __attribute__((visibility("hidden"))) opdock_status opdock_init(
    const opdock_host*, char* error, uint32_t size) {
  const char* hash = crypt("x", "$1$salt$");
  std::snprintf(error, size, "%d %d %s %d", triple(1), INNER, NAME, hash != nullptr);
  return OPDOCK_OK;
}
)x");
  }

  void declare_all(const std::string& name) {
    declare("[build]\ninclude = [\"in\"]\ndefines = [\"NAME=\\\"" + name +
            "\\\"\"]\nflags.cxx = [\"-ffast-math\"]\nflags." +
            (std::system("c++ --version | grep -q clang") == 0 ? "gcc" : "clang") +
            " = [\"-Os\"]\nlibraries = [\"pkg-config:triple\", \"crypt\"]\n");
  }

  // Returns the text that the plugin's init writes.
  static std::string said_by(const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return dlerror();
    using Entry = const opdock_plugin* (*)();
    const auto entry = reinterpret_cast<Entry>(dlsym(library, "opdock_plugin_v0"));
    char text[64] = "";
    entry()->init(nullptr, text, sizeof text);
    dlclose(library);
    return text;
  }
};

TEST_F(NeedsReal, ReachCompilersAndLinker) {
  declare_all("it's \\\\\\\"quoted\\\\\\\" $HOME");
  BuildResult result = build();
  ASSERT_NE(result.entry, nullptr) << text_of_reasons();
  EXPECT_EQ(said_by(result.plugin), "3 1000 it's \"quoted\" $HOME 1");
  EXPECT_NE(result.entry->maker().text.find("triple 4.5"), std::string::npos)
      << result.entry->maker().text;
  EXPECT_FALSE(build().built) << "nothing has changed";

  declare_all("other");
  result = build();
  ASSERT_TRUE(result.built) << text_of_reasons();
  EXPECT_EQ(said_by(result.plugin), "3 1000 other 1");

  write("source/in/deep/inner.h", "#define INNER 2000\n");
  result = build();
  ASSERT_TRUE(result.built) << text_of_reasons();
  EXPECT_EQ(said_by(result.plugin), "3 2000 other 1");
}

// The library's version is part of the maker's identity.
TEST_F(NeedsReal, AnotherVersionOfALibraryIsAnotherVariant) {
  declare_all("x");
  ASSERT_TRUE(build().built) << text_of_reasons();
  std::string pc = read("lib/triple.pc");
  write("lib/triple.pc", pc.replace(pc.find("4.5"), 3, "4.6"));
  const BuildResult result = build();
  ASSERT_TRUE(result.built) << text_of_reasons();
  EXPECT_NE(result.entry->maker().text.find("triple 4.6"), std::string::npos);
}

TEST_F(NeedsReal, LibrariesThatAreNotThereAreNamedAllAtOnce) {
  declare("[build]\nlibraries = [\"m\", \"nowhere\", \"pkg-config:never\", \"no-where\"]\n");
  EXPECT_EQ(build().entry, nullptr);
  ASSERT_EQ(reasons.size(), 3u) << text_of_reasons();
  for (const Reason& reason : reasons) EXPECT_EQ(reason.code, Code::kBuildNoLibrary);
  EXPECT_NE(reasons[0].found.find("never"), std::string::npos) << reasons[0].found;
  EXPECT_EQ(reasons[1].found, "no library nowhere for -lnowhere");
  EXPECT_EQ(reasons[2].found, "no library no-where for -lno-where");
  EXPECT_TRUE(left_nothing());
}

// ---- with scripts in place of the tools

TEST_F(Needs, EachPartIsAFieldOfTheRequest) {
  EXPECT_EQ(field("defines"), "absent");
  write("source/in/a.h", "int a;\n");
  write("source/in/b/c", "text\n");
  declare(R"([build]
include = ["in"]
defines = ["A=1", "B"]
flags = { cxx = ["-O1", "-g"], nvcc = ["-O2"] }
libraries = ["m", "pkg-config:foo", "z"]
least-cuda-arch = "sm_80"
)",
          "cuda");
  std::string toml = read("source/plugin.toml");
  write("source/op.cu", "");
  write("source/plugin.toml", toml.replace(toml.find("noop.cc\""), 8, "noop.cc\", \"op.cu\""));
  EXPECT_EQ(field("include folders"), "in");
  EXPECT_EQ(field("defines"), "A=1 B");
  EXPECT_EQ(field("flags for cxx"), "-O1 -g");
  EXPECT_EQ(field("flags for nvcc"), "-O2");
  EXPECT_EQ(field("libraries"), "m z");
  EXPECT_EQ(field("libraries of pkg-config"), "foo");
  EXPECT_EQ(field("least CUDA architecture"), "80");
  // Every file below an include folder counts, whether or not a source includes it.
  EXPECT_EQ(field("source in/a.h").size(), 64u);
  EXPECT_EQ(field("source in/b/c").size(), 64u);
  EXPECT_EQ(field("source in/b/"), "folder");
  std::vector<CacheField> before = fields();
  write("source/in/a.h", "int b;\n");
  EXPECT_NE(fields(), before);
  before = fields();
  write("source/in/b/d", "");
  EXPECT_NE(fields(), before);
  before = fields();
  fs::create_directory_symlink(".", source() + "/in/circle");
  EXPECT_EQ(fields(), before);
}

TEST_F(Needs, APackageThatIsNotThere) {
  tool("pkg-config", "case \"$*\" in *foo*) exit 0 ;; esac; echo 'No package bar found'; exit 1");
  declare("[build]\nlibraries = [\"pkg-config:foo\", \"pkg-config:bar\"]\n");
  expect_refused(Code::kBuildNoLibrary, "no library bar by pkg-config: No package bar found");
  EXPECT_EQ(reasons.size(), 1u) << text_of_reasons();
  tool("pkg-config", "exit 0");
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
}

TEST_F(Needs, ALibraryThatIsNotThere) {
  tool("c++", "case \"$*\" in *-lgone*) exit 1 ;; *) echo 'c++ 1.2.3' ;; esac");
  declare("[build]\nlibraries = [\"m\", \"gone\"]\n");
  expect_refused(Code::kBuildNoLibrary, "no library gone for -lgone");
  EXPECT_EQ(reasons.size(), 1u) << text_of_reasons();
  tool("c++", "echo 'c++ 1.2.3'");
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
}

TEST_F(Needs, NoPkgConfigIsReported) {
  declare("[build]\nlibraries = [\"pkg-config:foo\"]\n");
  expect_refused(Code::kBuildNoPkgConfig, "no pkg-config");
  tool("pkg-config", "exit 0");
  setenv("PKG_CONFIG", "/nowhere/pkg-config", 1);
  expect_refused(Code::kBuildNoPkgConfig, "no pkg-config");
  unsetenv("PKG_CONFIG");
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
  // A plugin without pkg-config libraries does not need pkg-config.
  declare("[build]\nlibraries = [\"m\"]\n");
  remove_tool("pkg-config");
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
}

TEST_F(Needs, AListWhollyBelowTheLeastArchitecture) {
  declare(
      "[device]\nsources = [\"k.cuh\"]\nkernels = [\"k\"]\n[build]\nleast-cuda-arch = \"8.0\"\n",
      "cuda");
  write("source/k.cuh", "");
  options.cuda_archs = "7.0;7.5+PTX";
  expect_refused(Code::kArchBelowLeast, "found --archs = \"7.0;7.5+PTX\", wanted 8.0 or later");
  const std::vector<Reason> against = check_build(manifest(), options);
  ASSERT_EQ(against.size(), 1u);
  EXPECT_EQ(against[0].code, Code::kArchBelowLeast);
}

}  // namespace
}  // namespace opdock::testing
