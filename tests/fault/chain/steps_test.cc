// Tests which step of the chain serves an op, in which order the steps are tried, and what is
// reported.
// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "chain_fixture.h"
#include "support/sanitizer.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;

class Steps : public ChainFixture {};

TEST_F(Steps, ABinaryServesAndNothingIsBuilt) {
  top_.add("good", "plugins/good.so");
  add_source("good", "9.0");  // newer, but a fitting binary is still preferred
  const RuntimePtr runtime = this->runtime();
  EXPECT_EQ(resolve(runtime.get(), "good").status, OPDOCK_OK);
  EXPECT_EQ(builds(), 0u);
  const Json told = explain(runtime.get(), "good");
  EXPECT_EQ(outcome(told, "binary"), "used");
  EXPECT_EQ(outcome(told, "build"), "not-needed");
  EXPECT_FALSE(told["chain"][0]["dry"]);
}

TEST_F(Steps, ASourceIsBuiltOnceAndFoundInTheCacheAfterwards) {
  add_source("good");
  Program program;
  {
    const RuntimePtr runtime = this->runtime(&program);
    Json told = explain(runtime.get(), "good");
    EXPECT_TRUE(told["chain"][0]["dry"]);
    EXPECT_EQ(outcome(told, "build"), "used");
    EXPECT_NE(told["chain"][0]["steps"][2]["text"].get<std::string>().find("would be built"),
              std::string::npos);
    EXPECT_EQ(builds(), 0u);
    const Outcome done = resolve(runtime.get(), "good");
    ASSERT_EQ(done.status, OPDOCK_OK) << done.text;
    EXPECT_EQ(builds(), 1u);
    told = explain(runtime.get(), "good");
    EXPECT_FALSE(told["chain"][0]["dry"]);
    EXPECT_EQ(outcome(told, "binary"), "failed");
    EXPECT_EQ(outcome(told, "build"), "used");
    EXPECT_EQ(outcome(told, "reference"), "not-needed");
    EXPECT_TRUE(told["usable"]);
  }
  EXPECT_EQ(program.waits, 0);
  ASSERT_GE(program.told.size(), 2u);
  EXPECT_NE(program.told.front().find("building good"), std::string::npos);
  EXPECT_NE(program.told[program.told.size() - 2].find("built good in"), std::string::npos);
  EXPECT_EQ(program.told.back(), "");
  for (const char* tool : {"c++", "cc", "meson", "ninja"}) remove_tool(tool);
  Program second;
  const RuntimePtr runtime = this->runtime(&second);
  EXPECT_NE(
      step(explain(runtime.get(), "good"), "build")["text"].get<std::string>().find("in the cache"),
      std::string::npos);
  EXPECT_EQ(resolve(runtime.get(), "good").status, OPDOCK_OK);
  EXPECT_EQ(builds(), 1u);
  EXPECT_TRUE(second.told.empty());
}

// An explanation reads the plugin's files too: it can be cancelled like a build, and it refuses
// files that are too large for a build.
TEST_F(Steps, WhatAnExplanationReadsIsStoppedAndLimited) {
  const std::string folder = add_source("good");
  fs::resize_file(folder + "/code.c", 250 << 20);
  Program program;
  program.cancelled = [] { return true; };
  Json told = step(explain(runtime(&program).get(), "good"), "build");
  EXPECT_EQ(told.at("outcome"), "failed");
  ASSERT_EQ(told.at("reasons").size(), 1u) << told;
  EXPECT_EQ(told.at("reasons")[0].at("code"), "cancelled");
  EXPECT_EQ(program.waits, 0);
  fs::resize_file(folder + "/code.c", 1ull << 40);
  told = step(explain(runtime().get(), "good"), "build");
  EXPECT_EQ(told.at("outcome"), "failed");
  ASSERT_EQ(told.at("reasons").size(), 1u) << told;
  EXPECT_EQ(told.at("reasons")[0].at("code"), "source-too-large");
  fs::resize_file(folder + "/code.c", 0);
  top_.write("plugins/good/weights.bin", "");
  fs::resize_file(folder + "/weights.bin", 1ull << 40);
  EXPECT_EQ(outcome(explain(runtime().get(), "good"), "build"), "used");
}

// An nvcc that reports no version is tried, and the record gets a warning.
TEST_F(Steps, WarningsOfABuildAreReportedThoughItServes) {
  const std::string folder = add_source("good");
  std::string toml;
  std::getline(std::ifstream(folder + "/plugin.toml"), toml, '\0');
  toml.replace(toml.find("\"code.c\""), 8, "\"code.c\", \"code.cu\"");
  top_.write("plugins/good/plugin.toml", toml);
  top_.write("plugins/good/code.cu", "int code;\n");
  tool("nvcc", "echo what");
  setenv("CUDACXX", path("bin/nvcc").c_str(), 1);
  const RuntimePtr runtime = this->runtime();
  const Outcome done = resolve(runtime.get(), "good");
  unsetenv("CUDACXX");
  ASSERT_EQ(done.status, OPDOCK_OK) << done.text;
  const Json told = step(explain(runtime.get(), "good"), "build");
  EXPECT_EQ(told.at("outcome"), "used");
  ASSERT_EQ(told.at("reasons").size(), 1u) << told.dump(1);
  EXPECT_EQ(told["reasons"][0]["code"], "tool-unknown");
}

TEST_F(Steps, BuildingAlwaysPrefersTheSource) {
  top_.add("good", "plugins/good.so");
  add_source("good");
  Program program;
  program.build = "always";
  const RuntimePtr runtime = this->runtime(&program);
  EXPECT_EQ(resolve(runtime.get(), "good").status, OPDOCK_OK);
  EXPECT_EQ(builds(), 1u);
  const Json told = explain(runtime.get(), "good");
  EXPECT_EQ(told["chain"][0]["steps"][0]["step"], "build");
  EXPECT_EQ(outcome(told, "binary"), "not-needed");
}

TEST_F(Steps, BuildingAlwaysFallsBackOnTheBinary) {
  top_.add("good", "plugins/good.so");
  add_source("good");
  tool("ninja", "exit 1");
  Program program;
  program.build = "always";
  const RuntimePtr runtime = this->runtime(&program);
  EXPECT_EQ(resolve(runtime.get(), "good").status, OPDOCK_OK);
  const Json told = explain(runtime.get(), "good");
  EXPECT_EQ(outcome(told, "build"), "failed");
  EXPECT_EQ(outcome(told, "binary"), "used");
}

TEST_F(Steps, BuildingNeverStillUsesTheCache) {
  add_source("good");
  Program never;
  never.build = "never";
  {
    const RuntimePtr runtime = this->runtime(&never);
    const Outcome refused = resolve(runtime.get(), "good");
    EXPECT_EQ(refused.status, OPDOCK_INCOMPATIBLE);
    EXPECT_TRUE(refused.has("build-policy")) << refused.reasons.dump(2);
    EXPECT_NE(refused.text.find("opdock_options"), std::string::npos) << refused.text;
    EXPECT_EQ(builds(), 0u);
  }
  ASSERT_EQ(resolve(runtime().get(), "good").status, OPDOCK_OK);
  EXPECT_EQ(resolve(runtime(&never).get(), "good").status, OPDOCK_OK);
  EXPECT_EQ(builds(), 1u);
}

TEST_F(Steps, OfTwoVersionsTheNewerIsBuilt) {
  add_source("good", "1.0", "", "a");
  const std::string newer = add_source("good", "1.1", "", "b");
  const RuntimePtr runtime = this->runtime();
  resolve(runtime.get(), "good");
  const Json told = step(explain(runtime.get(), "good"), "build");
  EXPECT_NE(told["text"].get<std::string>().find(newer), std::string::npos) << told.dump(2);
}

TEST_F(Steps, OfTwoVersionsTheOlderServesWhereTheNewerDoesNotBuild) {
  add_source("good", "1.0", "", "a");
  const std::string newer = add_source("good", "1.1", "", "b");
  tool("meson", "/bin/mkdir -p \"$4\"");
  tool("ninja",
       "/bin/mkdir -p \"$2/plugins\"\n/bin/grep -rq '\"1.1\"' --include=plugin.toml "
       "\"$(/usr/bin/dirname \"$2\")\" && { echo 'code.c:1:1: error: no'; exit 1; }\n/bin/cp " +
           case_path("good") + " \"$2/plugins/good.so\"");
  const RuntimePtr runtime = this->runtime();
  const Outcome done = resolve(runtime.get(), "good");
  ASSERT_EQ(done.status, OPDOCK_OK) << done.text;
  const Json told = step(explain(runtime.get(), "good"), "build");
  EXPECT_EQ(told["outcome"], "used");
  ASSERT_FALSE(told["reasons"].empty());
  EXPECT_EQ(told["reasons"][0]["path"], newer);
  EXPECT_EQ(told["reasons"][0]["plugin"], "good 1.1");
}

TEST_F(Steps, TouchedAndMovedFoldersAreNotBuiltAgain) {
  const std::string source = add_source("good");
  ASSERT_EQ(resolve(runtime().get(), "good").status, OPDOCK_OK);
  fs::last_write_time(source + "/code.c", fs::file_time_type::clock::now());
  EXPECT_EQ(resolve(runtime().get(), "good").status, OPDOCK_OK);
  fs::rename(source, path("plugins/elsewhere"));
  EXPECT_EQ(resolve(runtime().get(), "good").status, OPDOCK_OK);
  EXPECT_EQ(builds(), 1u);
}

TEST_F(Steps, AnEditedSourceIsBuiltAgainAndToldByName) {
  add_source("good");
  ASSERT_EQ(resolve(runtime().get(), "good").status, OPDOCK_OK);
  top_.write("plugins/good/code.c", "int other;\n");
  const RuntimePtr runtime = this->runtime();
  const auto names_the_file = [](const Json& changed) {
    return std::any_of(changed.begin(), changed.end(), [](const Json& one) {
      return one.get<std::string>().find("code.c") != std::string::npos;
    });
  };
  EXPECT_TRUE(names_the_file(step(explain(runtime.get(), "good"), "build")["changed"]));
  ASSERT_EQ(resolve(runtime.get(), "good").status, OPDOCK_OK);
  EXPECT_EQ(builds(), 2u);
  const Json told = step(explain(runtime.get(), "good"), "build");
  EXPECT_TRUE(names_the_file(told["changed"])) << told.dump(2);
}

TEST_F(Steps, TheErrorIsTheStoryStepByStep) {
  add_source("good");
  tool("ninja", "echo 'code.c:3:5: error: expected ;'; exit 1");
  const Outcome refused = resolve(runtime().get(), "good");
  EXPECT_EQ(refused.status, OPDOCK_INCOMPATIBLE);
  for (const char* part : {"\n  1. binary plugin: ", "\n  2. run-time compilation: ",
                           "\n  3. build from source: ", "\n  4. reference: ", "expected ;"}) {
    EXPECT_NE(refused.text.find(part), std::string::npos) << part << "\n" << refused.text;
  }
  for (const Json& reason : refused.reasons) {
    for (const char* member :
         {"step", "plugin", "path", "code", "stage", "text", "found", "wanted"}) {
      EXPECT_TRUE(reason.contains(member)) << member;
    }
  }
}

// The text is the same whether there is no driver or a driver without that many devices.
TEST_F(Steps, AMissingDriverIsToldInPlainWords) {
  add_source("good", "1.0", "reference = \"reference.py\"\n");
  top_.write("plugins/good/reference.py", "def good(x):\n    return x\n");
  Program program;
  program.has_runner = true;
  program.references["good"] = OPDOCK_OK;
  const Outcome refused = resolve(runtime(&program).get(), "good", {OPDOCK_ROCM, 63});
  ASSERT_EQ(refused.status, OPDOCK_INCOMPATIBLE) << refused.text;
  EXPECT_NE(refused.text.find("nothing here runs it on rocm:63:\n"), std::string::npos);
  EXPECT_TRUE(refused.has("driver-failed")) << refused.text;
  EXPECT_EQ(refused.text.find("found found"), std::string::npos) << refused.text;
}

TEST_F(Steps, ReasonsAreTakenOnce) {
  add_source("good");
  tool("ninja", "exit 1");
  const RuntimePtr runtime = this->runtime();
  EXPECT_FALSE(resolve(runtime.get(), "good").reasons.empty());
  char* text = nullptr;
  ASSERT_EQ(opdock_take_reasons_json(&text, nullptr, 0), OPDOCK_OK);
  EXPECT_STREQ(text, "[]");
  opdock_free(text);
}

TEST_F(Steps, ExplainingAndListingStartNothing) {
  add_source("good");
  for (const char* name : {"c++", "cc", "meson", "ninja"}) tool(name, "echo ran >> $TOP/ran");
  const RuntimePtr runtime = this->runtime();
  explain(runtime.get(), "good");
  char* text = nullptr;
  ASSERT_EQ(opdock_list_json(runtime.get(), 1, &text, nullptr, 0), OPDOCK_OK);
  opdock_free(text);
  opdock_function* function = nullptr;
  EXPECT_EQ(opdock_get_function(runtime.get(), "good", &function, nullptr, 0), OPDOCK_OK);
  EXPECT_STREQ(opdock_describe(function)->schema, "good(Tensor x) -> Tensor");
  EXPECT_STREQ(opdock_function_doc(function), "Nothing.");
  EXPECT_FALSE(fs::exists(path("ran")));
}

// ---- the last step

TEST_F(Steps, TheReferenceStandsInWithTheStory) {
  const std::string source = add_source("good", "1.0", "reference = \"reference.py\"\n");
  top_.write("plugins/good/reference.py", "def good(x):\n    return x\n");
  tool("ninja", "exit 1");
  Program program;
  program.has_runner = true;
  program.references["good"] = OPDOCK_OK;
  const RuntimePtr runtime = this->runtime(&program);
  const Outcome done = resolve(runtime.get(), "good");
  ASSERT_EQ(done.status, OPDOCK_OK) << done.text;
  ASSERT_EQ(resolve(runtime.get(), "good").status, OPDOCK_OK);
  ASSERT_EQ(program.records.size(), 1u);  // once for each op and device
  EXPECT_TRUE(program.records[0]["warn"]);
  EXPECT_EQ(program.records[0]["device"], "cpu");
  EXPECT_EQ(program.records[0]["steps"].size(), 3u);
  EXPECT_EQ(program.files[0], source + "/reference.py");
  EXPECT_EQ(outcome(explain(runtime.get(), "good"), "reference"), "used");
}

TEST_F(Steps, TheReferenceMayBeSilentOrForbidden) {
  add_source("good");
  tool("ninja", "exit 1");
  Program program;
  program.has_runner = true;
  program.references["good"] = OPDOCK_OK;
  program.fallback = "silent";
  ASSERT_EQ(resolve(runtime(&program).get(), "good").status, OPDOCK_OK);
  EXPECT_FALSE(program.records.at(0)["warn"]);
  program.fallback = "error";
  const Outcome refused = resolve(runtime(&program).get(), "good");
  EXPECT_EQ(refused.status, OPDOCK_INCOMPATIBLE);
  EXPECT_TRUE(refused.has("reference-policy"));
  EXPECT_EQ(program.records.size(), 1u);
}

TEST_F(Steps, AReferenceThatCannotBeOpenedLeavesNothingBehind) {
#if defined(OPDOCK_TEST_ASAN) || defined(OPDOCK_TEST_TSAN)
  GTEST_SKIP() << "a sanitizer's allocator does not tell what is in use";
#endif
  top_.add("note_major", "plugins/note_major.so");
  Program program;
  program.has_runner = true;
  program.references["note_major"] = OPDOCK_NOT_FOUND;
  const RuntimePtr runtime = this->runtime(&program);
  const auto fail = [&](int times) {
    for (int i = 0; i < times; ++i) {
      EXPECT_TRUE(resolve(runtime.get(), "note_major").has("reference-unusable"));
      program.records.clear();
      program.files.clear();
    }
    return static_cast<int64_t>(mallinfo2().uordblks);
  };
  const int64_t before = fail(20);
  EXPECT_LT(fail(200) - before, 200 * 64) << "bytes kept by 200 calls";
}

TEST_F(Steps, WithoutAnyUsablePluginTheReferenceMakesAFunction) {
  // written for another ABI and therefore rejected as a whole
  top_.add("note_major", "plugins/note_major.so");
  Program program;
  EXPECT_EQ(resolve(runtime(&program).get(), "note_major").status, OPDOCK_INCOMPATIBLE);
  program.has_runner = true;
  EXPECT_EQ(resolve(runtime(&program).get(), "note_major").status, OPDOCK_INCOMPATIBLE);
  program.references["note_major"] = OPDOCK_OK;
  const Outcome done = resolve(runtime(&program).get(), "note_major");
  EXPECT_EQ(done.status, OPDOCK_OK) << done.text;
  program.fallback = "error";
  EXPECT_EQ(resolve(runtime(&program).get(), "note_major").status, OPDOCK_INCOMPATIBLE);
}

}  // namespace
}  // namespace opdock::testing
