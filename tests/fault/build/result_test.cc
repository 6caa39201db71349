// Tests builds that succeed but leave something other than the plugin.
// SPDX-License-Identifier: Apache-2.0
#include "build_fixture.h"

namespace opdock::testing {
namespace {

struct ResultCase {
  const char* name;
  std::string (*body)();  // returns a shell command that creates $OUT
  const char* found;
};

std::string copy_of(const std::string& file) {
  return "cp " + file + " $OUT";
}

const ResultCase kResultCases[] = {
    {"Nothing", [] { return std::string(); }, "left no noop.so"},
    {"EmptyFile", [] { return std::string(": > $OUT"); }, "file-empty"},
    {"Text", [] { return std::string("echo hello > $OUT"); }, "not-elf"},
    {"Folder", [] { return std::string("mkdir $OUT"); }, "left no noop.so"},
    {"Fifo", [] { return std::string("mkfifo $OUT"); }, "left no noop.so"},
    {"LinkToNowhere", [] { return std::string("ln -s nowhere $OUT"); }, "left no noop.so"},
    {"NoNote", [] { return copy_of(plain_library()); }, "note-missing"},
    {"AnotherPlugin", [] { return copy_of(other_plugin()); }, "the plugin norm"},
    {"AnotherName", [] { return "cp " + good_plugin() + " ${OUT}x"; }, "left no noop.so"},
    {"CutInTheMiddle", [] { return "head -c 9000 " + good_plugin() + " > $OUT"; }, "elf-truncated"},
    {"CutInTheHeader", [] { return "head -c 40 " + good_plugin() + " > $OUT"; }, ""},
    {"OtherMachine",
     [] {
       return copy_of(good_plugin()) + "; chmod u+w $OUT; printf '\\050' | " +
              "dd of=$OUT bs=1 seek=18 conv=notrunc 2>/dev/null";
     },
     ""},
};

class Results : public BuildFixture, public ::testing::WithParamInterface<ResultCase> {};

TEST_P(Results, IsNotThePlugin) {
  const std::string good = "mkdir -p \"$2/plugins\"; OUT=\"$2/plugins/noop.so\"; ";
  tool("ninja", good + GetParam().body());
  EXPECT_EQ(build().entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildResult)) << text_of_reasons();
  EXPECT_NE(text_of_reasons().find(GetParam().found), std::string::npos) << text_of_reasons();
  EXPECT_TRUE(left_nothing());
  tool("ninja", good + copy_of(good_plugin()));
  write("source/noop.cc", "int corrected;\n");
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
}

INSTANTIATE_TEST_SUITE_P(All, Results, ::testing::ValuesIn(kResultCases),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace opdock::testing
