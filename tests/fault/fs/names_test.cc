// Tests duplicates, versions, and plugins that are switched off.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "folder.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;

TEST(Duplicate, HardLinkIsReported) {
  const Folder folder;
  folder.add("good", "a.so");
  fs::create_hard_link(folder.path("a.so"), folder.path("b.so"));
  const SearchOptions options = explicit_place(folder.path());
  const std::shared_ptr<const Catalog> catalog = find(options);
  EXPECT_EQ(at(*catalog, folder.path("a.so"))->verdict.state, State::kUsable);
  const std::shared_ptr<const Candidate> second = at(*catalog, folder.path("b.so"));
  EXPECT_TRUE(has_code(second->verdict.reasons, Code::kDuplicateFile)) << describe(*second);
  EXPECT_NE(second->verdict.reasons[0].found.find("a.so"), std::string::npos);
  expect_good_still_loads(options);
}

TEST(Duplicate, SymbolicLinkIsReported) {
  const Folder folder;
  folder.add("good", "a.so");
  fs::create_symlink("a.so", folder.path("b.so"));
  const SearchOptions options = explicit_place(folder.path());
  EXPECT_TRUE(
      has_code(at(*find(options), folder.path("b.so"))->verdict.reasons, Code::kDuplicateFile));
  expect_good_still_loads(options);
}

TEST(Duplicate, FileNamedTwiceIsReported) {
  const Folder folder;
  const std::string path = folder.add("good");
  const std::shared_ptr<const Catalog> catalog = find(explicit_place(path + ":" + path));
  ASSERT_EQ(catalog->candidates().size(), 2u);
  EXPECT_TRUE(has_code(catalog->candidates()[1]->verdict.reasons, Code::kDuplicateFile));
}

TEST(Duplicate, NameAndVersionInAnotherFileIsANotice) {
  const Folder folder;
  folder.add("good", "a.so");
  folder.add("good", "b.so");
  const SearchOptions options = explicit_place(folder.path());
  const std::shared_ptr<const Catalog> catalog = find(options);
  const std::shared_ptr<const Candidate> second = at(*catalog, folder.path("b.so"));
  EXPECT_TRUE(has_code(second->verdict.reasons, Code::kDuplicatePlugin)) << describe(*second);
  EXPECT_EQ(second->verdict.state, State::kUsable);
  EXPECT_EQ(catalog->providers("good")[0]->path, folder.path("a.so"));
}

TEST(Version, NewerWinsWhateverTheFolderOrder) {
  const Folder first, second;
  first.add("good", "a.so");
  second.add("good_v2", "b.so");
  const std::shared_ptr<const Catalog> catalog =
      find(explicit_place(first.path() + ":" + second.path()));
  EXPECT_EQ(catalog->providers("good")[0]->path, second.path("b.so"));
  const std::shared_ptr<const Candidate> old = at(*catalog, first.path("a.so"));
  EXPECT_TRUE(has_code(old->verdict.reasons, Code::kSuperseded)) << describe(*old);
  EXPECT_EQ(old->verdict.state, State::kUsable);
}

TEST(Version, AmongEqualsTheEarlierFolderWins) {
  const Folder first, second;
  first.add("good", "z.so");
  second.add("good", "a.so");
  const std::shared_ptr<const Catalog> catalog =
      find(explicit_place(first.path() + ":" + second.path()));
  EXPECT_EQ(catalog->providers("good")[0]->path, first.path("z.so"));
  EXPECT_EQ(catalog->providers("good")[1]->path, second.path("a.so"));
}

TEST(Version, UsableWinsOverNewer) {
  const Folder folder;
  folder.add("good", "a.so");
  const std::string newer = folder.add("good_v2", "b.so");
  fs::resize_file(newer, fs::file_size(newer) / 2);
  const SearchOptions options = explicit_place(folder.path());
  EXPECT_EQ(find(options)->providers("good")[0]->path, folder.path("a.so"));
  expect_good_still_loads(options);
}

TEST(Providers, MayBeAskedForByPlugin) {
  const Folder folder;
  folder.add("good");
  folder.add("good_b");
  const std::shared_ptr<const Catalog> catalog = find(explicit_place(folder.path()));
  EXPECT_EQ(catalog->providers("good/good").size(), 1u);
  EXPECT_EQ(catalog->providers("good_b/good").size(), 0u);
  EXPECT_EQ(catalog->providers("nothing").size(), 0u);
  EXPECT_EQ(catalog->providers("").size(), 0u);
  EXPECT_EQ(catalog->providers("/").size(), 0u);
}

struct NameRow {
  const char* name;
  const char* select;  // NULL: not set
  const char* disable;
  bool good;    // whether "good" is usable
  bool good_b;  // whether "good_b" is usable
};

void PrintTo(const NameRow& row, std::ostream* out) {
  *out << row.name;
}

constexpr NameRow kNameRows[] = {
    {"nothing_set", nullptr, nullptr, true, true},
    {"select_one", "good", nullptr, true, false},
    {"select_glob", "good*", nullptr, true, true},
    {"select_list", "x:good_b", nullptr, false, true},
    {"select_none", "x", nullptr, false, false},
    {"select_class", "good_[ab]", nullptr, false, true},
    {"select_question", "goo?", nullptr, true, false},
    {"disable_one", nullptr, "good_b", true, false},
    {"disable_glob", nullptr, "*_b", true, false},
    {"disable_all", nullptr, "*", false, false},
    {"disable_other", nullptr, "x", true, true},
    {"select_beats_disable", "good", "*", true, false},
    {"select_same_as_disable", "good", "good", true, false},
    {"select_is_case_sensitive", "GOOD", nullptr, false, false},
};

class Switched : public ::testing::TestWithParam<NameRow> {};

TEST_P(Switched, ByName) {
  const Folder folder;
  folder.add("good");
  folder.add("good_b");
  SearchOptions options = explicit_place(folder.path());
  if (GetParam().select != nullptr) options.environment.select = GetParam().select;
  if (GetParam().disable != nullptr) options.environment.disable = GetParam().disable;
  const std::shared_ptr<const Catalog> catalog = find(options);
  ASSERT_EQ(catalog->candidates().size(), 2u);
  for (const auto& [file, is_usable] :
       {std::pair("good.so", GetParam().good), std::pair("good_b.so", GetParam().good_b)}) {
    const std::shared_ptr<const Candidate> candidate = at(*catalog, folder.path(file));
    EXPECT_EQ(candidate->verdict.state == State::kUsable, is_usable) << describe(*candidate);
    EXPECT_EQ(has_code(candidate->verdict.reasons, Code::kDeselected), !is_usable);
  }
}

INSTANTIATE_TEST_SUITE_P(NameRow, Switched, ::testing::ValuesIn(kNameRows),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace opdock::testing
