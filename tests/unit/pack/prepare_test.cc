// Tests opdock-pack --prepare and --compile: how a plugin is compiled and linked. Real compilers
// read the generated files; the other programs are scripts.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>

#include "program.h"

namespace opdock::pack {
namespace {

namespace fs = std::filesystem;

class Prepare : public ::testing::Test {
 protected:
  Prepare() {
    write_plugin(folder);
    top = folder.path().string();
    // This pkg-config knows only the package foo.
    program("pkg-config",
            "case \"$*\" in\n*missing*) echo 'Package missing was not found'; exit 1 ;;\n"
            "*--cflags*) echo '-I/foo/in\\ clude \"-DFOO=a b\" -pthread' ;;\n"
            "*--libs*) echo '-L/foo/lib -lfoo' ;;\n"
            "*pcfiledir*) echo " +
                top + "/pc ;;\nesac");
    folder.write("pc/foo.pc", "");
    // An nvcc that knows 8.0 and 9.0, with a path that contains characters special to a shell.
    program("it's nvcc",
            "case \"$*\" in\n*--help*) echo \"'sm_80','sm_90'\" ;;\n"
            "*--dryrun*) echo '#$ TOP=" +
                top + "/cuda/bin/..' ;;\n*) printf '%s\\n' \"$@\" ;;\nesac");
    fs::create_directories(top + "/cuda/lib64");
    fs::create_directories(top + "/cuda/bin");
  }

  void program(const std::string& name, const std::string& body) {
    fs::permissions(folder.write(name, "#!/bin/sh\n" + body + "\n"), fs::perms::owner_all);
  }

  // Appends a [build] table to the plugin's toml and adds `source` to its sources.
  void declare(const std::string& build, const std::string& source = "p.cc") {
    folder.write("p/" + source, "");
    std::string toml = contents(top + "/p/plugin.toml");
    toml.replace(toml.find("[\"p.cc\"]"), 8, "[\"p.cc\", \"" + source + "\"]");
    if (source == "p.cc") toml.replace(toml.find(", \"p.cc\"]"), 9, "]");
    folder.write("p/plugin.toml", toml + "[build]\n" + build);
  }

  Outcome prepare(const std::string& more = "") {
    return pack(folder,
                "--prepare --toml " + top + "/p/plugin.toml --out-dir " + top +
                    "/out --prefix p. --depfile " + top + "/out/d --compiler-id gcc --headers " +
                    top + "/headers --include " + top + "/vocabulary " + more,
                "PKG_CONFIG=" + top + "/pkg-config OPDOCK_KFD=" + top);
  }
  Outcome prepare_nvcc(const std::string& more = "") {
    return prepare("--nvcc \"" + top + "/it's nvcc\" --host-compiler c++ " + more);
  }
  std::string made(const std::string& name) const { return contents(top + "/out/p." + name); }
  // Returns the lines of a file that begin with `begin`.
  std::string with(const std::string& name, const std::string& begin) const {
    std::istringstream lines(made(name));
    std::string found;
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with(begin)) found += line + " ";
    return found;
  }

  TemporaryFolder folder;
  std::string top;
};

TEST_F(Prepare, CompilersReadWhatIsWritten) {
  folder.write("p/in c'lude/deep/inner.h", "#define INNER 1\n");
  declare(R"(include = ["in c'lude"]
defines = ["PLAIN", "NUMBER=7", "TEXT=\"a 'b' \\\" c\"", "LAST=\\"]
flags.cxx = ["-DBY_CXX=1", "-DQUOTED=\"x y\"", "-std=c++17"]
flags.gcc = ["-DBY_GCC=1"]
flags.clang = ["-DBY_CLANG=1"]
flags.c = ["-DBY_C=1"]
)");
  const Outcome outcome = prepare();
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  const std::string source = folder.write("test.cc", R"x(#include <deep/inner.h>
static_assert(INNER == 1 && PLAIN == 1 && NUMBER == 7 && BY_CXX == 1 && BY_GCC == 1);
static_assert(sizeof(TEXT) == sizeof("a 'b' \" c") && sizeof(QUOTED) == sizeof("x y"));
static_assert(__cplusplus == 201703);
#if defined(BY_CLANG) || defined(BY_C)
#error "not for this compiler"
#endif
)x");
  for (const std::string compiler : {"c++", "clang++"}) {
    if (std::system((compiler + " --version >/dev/null 2>&1").c_str()) != 0) continue;
    const std::string command =
        compiler + " -Wall -Wextra -Werror -fsyntax-only @" + top + "/out/p.cxx.args " + source;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
  EXPECT_EQ(made("c.args"), "") << "there is no source in C";
}

TEST_F(Prepare, SourcesInCGetTheirOwnFlags) {
  declare(R"(flags.c = ["-DBY_C=1"]
flags.cxx = ["-DBY_CXX=1"]
flags.gcc = ["-DBY_GCC=1"]
)",
          "q.c");
  ASSERT_EQ(prepare().status, 0);
  EXPECT_EQ(made("c.args"), "-include\n" + top + "/out/p.needs.h\n-DBY_C=1\n-DBY_GCC=1\n");
  EXPECT_EQ(made("cxx.args"), "-include\n" + top + "/out/p.needs.h\n-DBY_CXX=1\n-DBY_GCC=1\n");
}

TEST_F(Prepare, LibrariesAreLinkedInTheirOrder) {
  declare("libraries = [\"m\", \"pkg-config:foo\", \"z\"]\n");
  const Outcome outcome = prepare();
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(made("link.args"), "-lm\n-L/foo/lib\n-lfoo\n-lz\n");
  EXPECT_EQ(made("cxx.args"),
            "-include\n" + top + "/out/p.needs.h\n-I/foo/in\\ clude\n-DFOO=a\\ b\n-pthread\n");
  EXPECT_NE(contents(top + "/out/d").find(top + "/pc/foo.pc"), std::string::npos);
}

TEST_F(Prepare, ALibraryThatPkgConfigDoesNotHaveIsAReason) {
  declare("libraries = [\"pkg-config:missing\"]\n");
  const Outcome outcome = prepare();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(
      outcome.text.starts_with("opdock-pack: error: build-no-library: found no library "
                               "missing by pkg-config: Package missing was not found, "
                               "wanted missing.pc"))
      << outcome.text;
  EXPECT_FALSE(fs::exists(top + "/out"));
}

TEST_F(Prepare, NvccIsToldEverything) {
  folder.write("p/inc/x.h", "");
  declare(
      "include = [\"inc\"]\nlibraries = [\"pkg-config:foo\"]\nflags.nvcc = "
      "[\"--use_fast_math\"]\n",
      "p.cu");
  const Outcome outcome = prepare_nvcc("--cuda-archs '9.0;8.0+PTX'");
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  const std::string text = made("nvcc.args");
  EXPECT_TRUE(text.starts_with(top + "/it's nvcc\n-std=c++20\n")) << text;
  EXPECT_EQ(with("nvcc.args", "-gencode"),
            "-gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80 "
            "-gencode=arch=compute_90,code=sm_90 ");
  EXPECT_EQ(with("nvcc.args", "-I"),
            "-I" + top + "/headers -I" + top + "/vocabulary -I" + top + "/p/inc -I/foo/in clude ");
  EXPECT_EQ(text.find("pthread"), text.npos) << "nvcc does not know it";
  EXPECT_TRUE(text.ends_with("--use_fast_math\n")) << text;
  EXPECT_EQ(made("link.args"), "-L/foo/lib\n-lfoo\n-L" + top +
                                   "/cuda/lib64\n-lcudart_static\n-lpthread\n-ldl\n-lrt\n");
}

TEST_F(Prepare, ArchitecturesThatNvccDoesNotKnow) {
  Outcome outcome = prepare_nvcc("--cuda-archs '9.0;6.0;7.0+PTX'");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.text.find("build-arch: found 6.0, 7.0+PTX in --cuda-archs"), std::string::npos)
      << outcome.text;
  outcome = prepare("--nvcc /bin/true");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.text.find("build-no-nvcc: found no architectures"), std::string::npos)
      << outcome.text;
}

TEST_F(Prepare, OfWhatStandsForAGpuPtxIsMade) {
  ASSERT_EQ(prepare_nvcc("--cuda-archs 9.9 --gpu-archs 9.9").status, 0);
  EXPECT_EQ(with("nvcc.args", "-gencode"),
            "-gencode=arch=compute_90,code=sm_90 -gencode=arch=compute_90,code=compute_90 ");
}

TEST_F(Prepare, NothingIsCompiledBelowTheLeastArchitecture) {
  declare("least-cuda-arch = \"9.0\"\n");
  ASSERT_EQ(prepare_nvcc().status, 0);
  EXPECT_EQ(with("nvcc.args", "-gencode"),
            "-gencode=arch=compute_90,code=sm_90 -gencode=arch=compute_90,code=compute_90 ");
  ASSERT_EQ(prepare_nvcc("--cuda-archs '8.0+PTX;9.0'").status, 0);
  EXPECT_EQ(with("nvcc.args", "-gencode"), "-gencode=arch=compute_90,code=sm_90 ");
  const Outcome outcome = prepare_nvcc("--cuda-archs 8.0");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.text.find("arch-below-least: found --cuda-archs = \"8.0\", wanted 9.0 or "),
            std::string::npos)
      << outcome.text;
}

TEST_F(Prepare, HipccIsToldTheProcessors) {
  ASSERT_EQ(prepare("--hipcc /bin/hipcc --hip-archs 'gfx90a:xnack+, gfx1030'").status, 0);
  EXPECT_EQ(with("hipcc.args", "--offload"),
            "--offload-arch=gfx1030 --offload-arch=gfx90a:xnack+ ");
  EXPECT_TRUE(made("hipcc.args").ends_with("-x\nhip\n"));
  EXPECT_NE(made("link.args").find("-lamdhip64\n"), std::string::npos);
  ASSERT_EQ(prepare("--hipcc /bin/hipcc").status, 0);
  EXPECT_EQ(with("hipcc.args", "--offload"), "");
  const Outcome outcome = prepare("--hipcc /bin/hipcc --hip-archs native");
  EXPECT_EQ(outcome.status, 1) << "no AMD GPU is in the folder";
  EXPECT_NE(outcome.text.find("no visible AMD GPU"), std::string::npos) << outcome.text;
}

// Otherwise everything would be compiled again after a changed word in a doc.
TEST_F(Prepare, WhatStaysTheSameIsLeftAlone) {
  declare("defines = [\"A=1\"]\n");
  ASSERT_EQ(prepare().status, 0);
  const std::string needs = top + "/out/p.needs.h";
  const auto old = fs::last_write_time(needs) - std::chrono::hours(1);
  fs::last_write_time(needs, old);
  const std::string toml = contents(top + "/p/plugin.toml");
  folder.write("p/plugin.toml", toml + "# more\n");
  ASSERT_EQ(prepare().status, 0);
  EXPECT_EQ(fs::last_write_time(needs), old);
  // Changed flags must also reach what is already compiled.
  folder.write("p/plugin.toml", toml + "flags.cxx = [\"-O1\"]\n");
  ASSERT_EQ(prepare().status, 0);
  EXPECT_NE(fs::last_write_time(needs), old);
}

TEST_F(Prepare, TheCompilerIsRunAsWritten) {
  declare("flags.nvcc = [\"-DX='a b\\\\\"]\n", "p.cu");
  ASSERT_EQ(prepare_nvcc("--cuda-archs 9.0").status, 0);
  const std::string words = "--compile /a/p.cu --output /b/p.o --depfile /b/p.d --arguments ";
  const Outcome outcome = pack(folder, words + top + "/out/p.nvcc.args");
  EXPECT_EQ(outcome.status, 0);
  const std::string text = made("nvcc.args");
  EXPECT_EQ(outcome.text,
            text.substr(text.find('\n') + 1) + "-c\n/a/p.cu\n-o\n/b/p.o\n-MD\n-MF\n/b/p.d\n");
  EXPECT_NE(outcome.text.find("\n-DX='a b\\\n"), std::string::npos) << outcome.text;
  EXPECT_EQ(pack(folder, words + top + "/out/p.hipcc.args").status, 1) << "it is empty";
  folder.write("absent", "/no/such/compiler\n");
  const Outcome absent = pack(folder, words + top + "/absent");
  EXPECT_EQ(absent.status, 1);
  EXPECT_NE(absent.text.find("/no/such/compiler cannot be run"), std::string::npos) << absent.text;
  EXPECT_EQ(pack(folder, "--compile /a/p.cu").status, 2);
}

TEST_F(Prepare, FoldersOfPluginsAreListed) {
  for (const char* name : {"b/plugin.toml", "b/meson.build", "a/plugin.toml", "a/meson.build",
                           "no_rules/plugin.toml", "no_toml/meson.build", "file"})
    folder.write(std::string("all/") + name, "");
  EXPECT_EQ(pack(folder, "--plugins-in " + top + "/all").text, "a\nb\n");
  EXPECT_EQ(pack(folder, "--plugins-in " + top + "/none").status, 1);
}

}  // namespace
}  // namespace opdock::pack
