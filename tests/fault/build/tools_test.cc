// Tests tools that are missing or misbehave: each case has its code and leaves nothing behind, and
// the next attempt with good tools succeeds.
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>

#include "base/installed.h"
#include "build_fixture.h"

namespace opdock::testing {
namespace {

struct ToolCase {
  const char* name;
  const char* tool;
  const char* body;  // NULL: the tool is missing
  Code code;
  const char* found;  // expected part of the reasons' text
  double timeout = 30;
};

// Prints 100 MB without an end of line.
constexpr char kMuch[] =
    "head -c 100000000 /dev/zero | tr '\\0' x; echo; echo 'a.cc:1:2: error: the end'; exit 1";

const ToolCase kToolCases[] = {
    {"NoCxx", "c++", nullptr, Code::kBuildNoCompiler, "c++, g++, clang++"},
    {"NoC", "cc", nullptr, Code::kBuildNoCompiler, "cc, gcc, clang"},
    {"NoMeson", "meson", nullptr, Code::kBuildNoMeson, "no meson"},
    {"NoNinja", "ninja", nullptr, Code::kBuildNoNinja, "no ninja"},
    {"CxxFails", "c++", "exit 3", Code::kBuildNoCompiler, "status 3"},
    {"CxxCrashes", "c++", "kill -SEGV $$", Code::kBuildNoCompiler, "signal 11"},
    {"CxxHangs", "c++", "sleep 60", Code::kBuildNoCompiler, "did not end in time"},
    {"CxxHangsUntilTheEnd", "c++", "sleep 60", Code::kBuildTimeout, "being asked for --version",
     0.3},
    {"CxxPrintsNuls", "c++", "printf 'c\\0+ 3\\0 1.2'; exit 3", Code::kBuildNoCompiler, "status 3"},
    {"CFails", "cc", "exit 1", Code::kBuildNoCompiler, "status 1"},
    {"CCrashes", "cc", "kill -ABRT $$", Code::kBuildNoCompiler, "signal 6"},
    {"MesonFails", "meson",
     "echo 'plugins/plugin/meson.build:3:0: ERROR: Unknown variable'; exit 1", Code::kBuildFailed,
     "meson.build:3:0: ERROR: Unknown variable"},
    {"MesonFailsSilently", "meson", "exit 1", Code::kBuildFailed,
     "meson setup ended with status 1"},
    {"MesonCrashes", "meson", "kill -SEGV $$", Code::kBuildNoMeson, "signal 11"},
    {"MesonHangs", "meson", "sleep 60", Code::kBuildTimeout, "did not end in time", 0.7},
    {"MesonIsBroken", "meson",
     "echo 'Traceback (most recent call last):'; echo \"No module named 'mesonbuild'\"; exit 1",
     Code::kBuildNoMeson, "status 1"},
    {"MesonIsOld", "meson",
     "echo 'x/meson.build:5:0: ERROR: Meson version is 0.5 but project requires >=1.1'; exit 1",
     Code::kBuildNoMeson, "Meson version is 0.5"},
    {"MesonRefusesCompiler", "meson",
     "echo 'meson.build:6:0: ERROR: Compiler c++ cannot compile programs.'; exit 1",
     Code::kBuildNoCompiler, "cannot compile programs"},
    {"MesonMissesNinja", "meson", "echo 'ERROR: Could not detect Ninja v1.8.2 or newer'; exit 1",
     Code::kBuildNoNinja, "Could not detect Ninja"},
    {"MesonMakesNothing", "meson", "exit 0", Code::kBuildFailed, "loading 'build.ninja'"},
    {"NinjaFailsSilently", "ninja", "exit 1", Code::kBuildFailed, "ninja ended with status 1"},
    {"NinjaCrashes", "ninja", "kill -SEGV $$", Code::kBuildNoNinja, "signal 11"},
    {"NinjaIsKilled", "ninja", "kill -KILL $$", Code::kBuildMemory, "signal 9"},
    {"NinjaHangs", "ninja", "sleep 60", Code::kBuildTimeout, "did not end in time", 0.7},
    {"NinjaIgnoresTerm", "ninja", "trap '' TERM INT HUP; while :; do sleep 0.05; done",
     Code::kBuildTimeout, "did not end in time", 0.7},
    {"NinjaPrintsNuls", "ninja", "printf 'a.cc:1:2: error: before\\0behind\\n  more\\n'; exit 1",
     Code::kBuildFailed, "before\uFFFDbehind\n  more"},
    {"NinjaPrintsMuch", "ninja", kMuch, Code::kBuildFailed, "the end"},
    {"MesonPrintsMuch", "meson", kMuch, Code::kBuildFailed, "the end"},
    {"NinjaLeavesChildren", "ninja",
     "setsid sleep 60 & sleep 60 & (setsid sh -c 'sleep 60; true' &) ; echo 'a.cc:1: error: b'; "
     "exit 1",
     Code::kBuildFailed, "a.cc:1: error: b"},
};

class Tools : public BuildFixture, public ::testing::WithParamInterface<ToolCase> {};

TEST_P(Tools, Misbehaving) {
  const ToolCase& row = GetParam();
  const std::string good = read("bin/" + std::string(row.tool));
  if (row.body == nullptr) {
    remove_tool(row.tool);
  } else {
    tool(row.tool, row.body);
  }
  if (std::string(row.name) == "MesonMakesNothing") {
    tool("ninja",
         "echo \"ninja: error: loading 'build.ninja': No such file or directory\"; exit 1");
  }
  options.timeout_seconds = row.timeout;
  const auto begin = std::chrono::steady_clock::now();
  const BuildResult result = build();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  EXPECT_EQ(result.entry, nullptr);
  EXPECT_TRUE(failed_with(row.code)) << text_of_reasons();
  EXPECT_NE(text_of_reasons().find(row.found), std::string::npos) << text_of_reasons();
  EXPECT_LT(text_of_reasons().size(), 12000u);
  EXPECT_LT(cache->last_log.size(), 1u << 20);
  EXPECT_TRUE(left_nothing());
  EXPECT_EQ(orphans(), std::vector<std::string>());

  options.timeout_seconds = 30;
  options.retry_failed = true;
  BuildFixture::write("bin/" + std::string(row.tool), good);
  chmod((top + "/bin/" + row.tool).c_str(), 0700);
  if (std::string(row.name) == "MesonMakesNothing") {
    tool("ninja", "mkdir -p $2/plugins; cp " + good_plugin() + " $2/plugins/noop.so");
  }
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
}

INSTANTIATE_TEST_SUITE_P(All, Tools, ::testing::ValuesIn(kToolCases),
                         [](const auto& row) { return std::string(row.param.name); });

class Toolbox : public BuildFixture {};

TEST_F(Toolbox, GoodBuildGivesThePluginItsLogAndItsProgress) {
  const BuildResult result = build();
  ASSERT_NE(result.entry, nullptr) << text_of_reasons();
  EXPECT_TRUE(result.built);
  EXPECT_TRUE(std::filesystem::exists(result.plugin));
  EXPECT_TRUE(std::filesystem::exists(result.log_path));
  EXPECT_EQ(result.entry->maker().text, "c++ 1.2.3, cc 1.2.3");
  EXPECT_EQ(watcher.steps.back(), "building noop: 2 of 2 steps");
  EXPECT_EQ(watcher.last_fraction, 1);
  EXPECT_TRUE(left_nothing());
  EXPECT_FALSE(build().built);
  EXPECT_EQ(lines("builds"), 1u);
}

TEST_F(Toolbox, NoToolsAtAllSaysEachAndTakesWhatAnotherMade) {
  ASSERT_NE(build().entry, nullptr);
  setenv("PATH", "", 1);
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
  write("source/noop.cc", "int other;\n");
  EXPECT_EQ(build().entry, nullptr);
  for (const Code code : {Code::kBuildNoCompiler, Code::kBuildNoMeson, Code::kBuildNoNinja}) {
    EXPECT_TRUE(failed_with(code)) << text_of_reasons();
  }
}

TEST_F(Toolbox, VariablesNameTools) {
  tool("mine", "echo 'mine 7.0.1'");
  setenv("CXX", "mine -m64", 1);
  const BuildResult result = build();
  ASSERT_NE(result.entry, nullptr) << text_of_reasons();
  EXPECT_NE(result.entry->maker().text.find("7.0.1"), std::string::npos);
  for (const char* wrong : {"absent", "./mine", "/nowhere/c++"}) {
    setenv("CXX", wrong, 1);
    write("source/noop.cc", wrong);
    EXPECT_EQ(build().entry, nullptr);
    EXPECT_TRUE(failed_with(Code::kBuildNoCompiler));
    EXPECT_NE(text_of_reasons().find(wrong), std::string::npos) << text_of_reasons();
  }
  unsetenv("CXX");
}

TEST_F(Toolbox, FoldersFilesWithoutPermissionAndRelativeEntriesAreNoTools) {
  remove_tool("c++");
  std::filesystem::create_directories(top + "/bin/c++");
  write("bin/g++", "#!/bin/sh\necho 9.9.9\n");
  chmod((top + "/bin/g++").c_str(), 0600);
  const std::string here = std::filesystem::current_path();
  ASSERT_EQ(chdir(top.c_str()), 0);
  write("rel/c++", "#!/bin/sh\necho 9.9.9\n");
  chmod((top + "/rel/c++").c_str(), 0700);
  setenv("PATH", (top + "/bin:rel").c_str(), 1);
  EXPECT_EQ(build().entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildNoCompiler)) << text_of_reasons();
  ASSERT_EQ(chdir(here.c_str()), 0);
}

TEST_F(Toolbox, AnInterpreterThatIsGoneIsNamed) {
  write("bin/meson", "#!/nowhere/python\n");
  chmod((top + "/bin/meson").c_str(), 0700);
  EXPECT_EQ(build().entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildNoMeson)) << text_of_reasons();
  EXPECT_NE(text_of_reasons().find("could not be started"), std::string::npos);
}

TEST_F(Toolbox, PartsOfOpdockThatAreMissingAreNamed) {
  const Installed whole = installed();
  struct Row {
    const char* name;
    std::string Installed::* member;
  };
  for (const Row& row :
       {Row{"opdock-pack", &Installed::root}, Row{"plugin-build", &Installed::plugin_build},
        Row{"opdock/plugin.h", &Installed::include},
        Row{"opdock/device.cuh", &Installed::device}}) {
    Installed part = whole;
    part.*row.member = "";
    use_installed(part);
    EXPECT_EQ(build().entry, nullptr);
    EXPECT_TRUE(failed_with(Code::kBuildIncomplete)) << row.name;
    EXPECT_NE(text_of_reasons().find(row.name), std::string::npos) << text_of_reasons();
  }
  use_installed(whole);
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
}

TEST_F(Toolbox, DeviceCompilersAreWantedOnlyForTheirFiles) {
  Manifest plugin = manifest();
  setenv("CUDACXX", "/nowhere/nvcc", 1);
  setenv("HIPCXX", "/nowhere/hipcc", 1);
  plugin.sources = {"noop.cu", "noop.hip"};
  build_plugin(plugin, options, cache.get(), nullptr, &reasons);
  EXPECT_TRUE(failed_with(Code::kBuildNoNvcc)) << text_of_reasons();
  EXPECT_TRUE(failed_with(Code::kBuildNoHipcc)) << text_of_reasons();
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
  unsetenv("CUDACXX");
  unsetenv("HIPCXX");
}

}  // namespace
}  // namespace opdock::testing
