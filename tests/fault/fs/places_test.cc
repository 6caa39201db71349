// Tests named places that cannot be searched, and the order of places.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "folder.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;

struct PlaceRow {
  const char* name;
  std::string path;
  Code code;
};

void PrintTo(const PlaceRow& row, std::ostream* out) {
  *out << row.name;
}

const PlaceRow kPlaceRows[] = {
    {"missing", "/nowhere/at/all", Code::kPathMissing},
    {"below_a_file", "/proc/self/exe/plugins", Code::kPathMissing},
    {"name_of_4_KB", "/" + std::string(4000, 'n'), Code::kNameInvalid},
    {"path_of_5_KB",
     [] {
       std::string path;
       for (int i = 0; i < 50; ++i) path += "/" + std::string(99, 'p');
       return path;
     }(),
     Code::kNameInvalid},
    {"device", "/dev/null", Code::kNotRegular},
    {"not_utf8", "/nowhere/\xff", Code::kPathMissing},
};

class BadPlace : public ::testing::TestWithParam<PlaceRow> {};

TEST_P(BadPlace, IsReportedAndTheOthersAreSearched) {
  const Folder folder;
  folder.add("good");
  const SearchOptions options = explicit_place(GetParam().path + ":" + folder.path());
  const std::shared_ptr<const Catalog> catalog = find(options);
  ASSERT_EQ(catalog->candidates().size(), 2u);
  const Candidate& candidate = *catalog->candidates()[0];
  EXPECT_EQ(candidate.verdict.state, State::kRejected);
  EXPECT_TRUE(has_code(candidate.verdict.reasons, GetParam().code)) << describe(candidate);
  expect_good_still_loads(options);
}

INSTANTIATE_TEST_SUITE_P(PlaceRow, BadPlace, ::testing::ValuesIn(kPlaceRows),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Place, ThatIsAFifoIsReportedAndDoesNotBlock) {
  const Folder folder;
  folder.add("good");
  mkfifo(folder.path("pipe").c_str(), 0600);
  const SearchOptions options = explicit_place(folder.path("pipe") + ":" + folder.path());
  EXPECT_TRUE(has_code(find(options)->candidates()[0]->verdict.reasons, Code::kNotRegular));
  expect_good_still_loads(options);
}

TEST(Place, ThatIsADanglingLinkIsReported) {
  const Folder folder;
  fs::create_symlink("nowhere", folder.path("plugins"));
  const std::shared_ptr<const Catalog> catalog = find(package_place(folder.path("plugins")));
  const std::shared_ptr<const Candidate> candidate = at(*catalog, folder.path("plugins"));
  ASSERT_NE(candidate, nullptr);
  EXPECT_TRUE(has_code(candidate->verdict.reasons, Code::kLinkBroken));
}

TEST(Place, MayBeAFileWithAnyName) {
  const Folder folder;
  const std::string path = folder.add("good", "plugin.bin");
  expect_good_still_loads(explicit_place(path));
}

TEST(Place, MayBeRelative) {
  const Folder folder;
  folder.add("good");
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  const std::shared_ptr<const Catalog> catalog = find(explicit_place("good.so"));
  fs::current_path(before);
  ASSERT_EQ(catalog->candidates().size(), 1u);
  EXPECT_EQ(catalog->candidates()[0]->path, folder.path("good.so"));
}

TEST(Place, MayBeALinkToAFolder) {
  const Folder folder;
  fs::create_directory(folder.path("real"));
  folder.add("good", "real/good.so");
  fs::create_symlink("real", folder.path("link"));
  expect_good_still_loads(explicit_place(folder.path("link")));
}

TEST(Place, WithSlashesAtItsEndGivesCleanPaths) {
  const Folder folder;
  folder.add("good");
  const std::shared_ptr<const Catalog> catalog = find(explicit_place(folder.path() + "///"));
  EXPECT_NE(at(*catalog, folder.path("good.so")), nullptr);
}

TEST(Place, NamedTwiceOrThroughALinkIsSearchedOnce) {
  const Folder folder;
  fs::create_directory(folder.path("real"));
  folder.add("good", "real/good.so");
  fs::create_symlink("real", folder.path("link"));
  const std::string real = folder.path("real");
  EXPECT_EQ(
      find(explicit_place(real + ":" + real + ":" + folder.path("link")))->candidates().size(), 1u);
}

TEST(Place, EmptyEntriesOfAListAreNotTheCurrentFolder) {
  const Folder folder;
  folder.add("good");
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  EXPECT_TRUE(find(explicit_place("::"))->candidates().empty());
  EXPECT_TRUE(find(explicit_place(""))->candidates().empty());
  fs::current_path(before);
}

TEST(Place, OfThePackageThatIsMissingIsReported) {
  const std::shared_ptr<const Candidate> candidate =
      at(*find(package_place("/nowhere/at/all")), "/nowhere/at/all");
  ASSERT_NE(candidate, nullptr);
  EXPECT_TRUE(has_code(candidate->verdict.reasons, Code::kPathMissing));
}

TEST(Place, OfTheUserThatIsMissingIsOrdinary) {
  SearchOptions options;
  options.environment.data_home = "/nowhere/at/all";
  for (const std::shared_ptr<const Catalog> catalog = find(options);
       const std::shared_ptr<const Candidate>& candidate : catalog->candidates()) {
    EXPECT_EQ(candidate->path.find("/nowhere"), std::string::npos);
  }
}

TEST(Place, OrderIsAddedThenUserThenPackage) {
  const Folder added, home, package;
  fs::create_directories(home.path("opdock/plugins"));
  SearchOptions options = package_place(package.path());
  options.environment.add_plugin_path = added.path();
  options.environment.data_home = home.path();
  package.add("good", "p.so");
  home.add("good", "opdock/plugins/h.so");
  added.add("good", "a.so");
  const std::shared_ptr<const Catalog> catalog = find(options);
  ASSERT_GE(catalog->candidates().size(), 3u);
  EXPECT_EQ(catalog->candidates()[0]->path, added.path("a.so"));
  EXPECT_EQ(catalog->candidates()[1]->path, home.path("opdock/plugins/h.so"));
  EXPECT_EQ(catalog->candidates()[2]->path, package.path("p.so"));
  // The variable replaces the default places and keeps the added one.
  const Folder instead;
  instead.add("good", "i.so");
  options.environment.plugin_path = instead.path();
  const std::shared_ptr<const Catalog> other = find(options);
  ASSERT_EQ(other->candidates().size(), 2u);
  EXPECT_EQ(other->candidates()[1]->path, instead.path("i.so"));
  // The program's own option replaces everything.
  options.plugin_path = package.path();
  options.has_plugin_path = true;
  EXPECT_EQ(find(options)->candidates().size(), 1u);
}

}  // namespace
}  // namespace opdock::testing
