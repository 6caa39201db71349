// Tests that the checked file is the loaded file, and that a new version can be loaded next to the
// old one.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "folder.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;

struct Change {
  const char* name;
  std::function<void(const Folder& folder, const std::string& path)> apply;
};

void PrintTo(const Change& change, std::ostream* out) {
  *out << change.name;
}

const Change kChanges[] = {
    {"replaced_by_rename",
     [](const Folder& f, const std::string&) { f.replace("good_b", "p.so"); }},
    {"removed", [](const Folder&, const std::string& path) { unlink(path.c_str()); }},
    {"truncated", [](const Folder&, const std::string& path) { fs::resize_file(path, 4096); }},
    {"emptied", [](const Folder&, const std::string& path) { fs::resize_file(path, 0); }},
    {"longer",
     [](const Folder&, const std::string& path) {
       std::ofstream(path, std::ios::app) << "one more byte";
     }},
    {"same_size_rewritten",
     [](const Folder&, const std::string& path) {
       std::fstream(path, std::ios::in | std::ios::out).seekp(4000).put('!');
     }},
    {"touched",
     [](const Folder&, const std::string& path) {
       fs::last_write_time(path, fs::file_time_type::clock::now() + std::chrono::hours(1));
     }},
    {"mode_changed", [](const Folder&, const std::string& path) { chmod(path.c_str(), 0700); }},
    {"made_a_fifo",
     [](const Folder&, const std::string& path) {
       unlink(path.c_str());
       mkfifo(path.c_str(), 0600);
     }},
    {"made_a_folder",
     [](const Folder&, const std::string& path) {
       unlink(path.c_str());
       fs::create_directory(path);
     }},
    {"made_a_dangling_link",
     [](const Folder&, const std::string& path) {
       unlink(path.c_str());
       fs::create_symlink("nowhere", path);
     }},
    {"made_a_link_to_another",
     [](const Folder& f, const std::string& path) {
       unlink(path.c_str());
       fs::create_symlink(f.add("good_b", "b.so"), path);
     }},
    {"folder_renamed",
     [](const Folder& f, const std::string&) { fs::rename(f.path("in"), f.path("out")); }},
};

class ChangedBetweenCheckAndLoad : public ::testing::TestWithParam<Change> {};

TEST_P(ChangedBetweenCheckAndLoad, IsRefused) {
  const Folder folder;
  const bool is_deep = std::string(GetParam().name) == "folder_renamed";
  if (is_deep) fs::create_directory(folder.path("in"));
  const std::string path = folder.add("null_init", is_deep ? "in/p.so" : "p.so");
  const std::shared_ptr<const Candidate> candidate = at(*find(explicit_place(path)), path);
  ASSERT_NE(candidate, nullptr);
  ASSERT_EQ(candidate->verdict.state, State::kUsable) << describe(*candidate);
  GetParam().apply(folder, path);
  std::vector<Reason> reasons;
  EXPECT_EQ(load(candidate, counting_host(), &reasons), nullptr);
  EXPECT_TRUE(has_code(reasons, Code::kFileChanged));
  folder.add("good");
  expect_good_still_loads(explicit_place(folder.path()));
}

INSTANTIATE_TEST_SUITE_P(Change, ChangedBetweenCheckAndLoad, ::testing::ValuesIn(kChanges),
                         [](const auto& info) { return std::string(info.param.name); });

const LoadedPlugin* load_path(const std::string& path, std::vector<Reason>* reasons) {
  return load(at(*find(explicit_place(path)), path), counting_host(), reasons);
}

TEST(Replaced, ByRenameIsLoadedBesideTheOldVersion) {
  const Folder folder;
  std::vector<Reason> reasons;
  const std::string path = folder.add("good", "p.so");
  const LoadedPlugin* old = load_path(path, &reasons);
  ASSERT_NE(old, nullptr);
  folder.replace("good_v2", "p.so");
  const LoadedPlugin* fresh = load_path(path, &reasons);
  ASSERT_NE(fresh, nullptr) << to_text(reasons.front());
  EXPECT_STREQ(old->descriptor->version, "1.0");
  EXPECT_STREQ(fresh->descriptor->version, "2.0");
  EXPECT_NE(old->handle, fresh->handle);
  // Back to the first version, which counts as a third content at the same path.
  folder.replace("good", "p.so");
  const LoadedPlugin* third = load_path(path, &reasons);
  ASSERT_NE(third, nullptr);
  EXPECT_STREQ(third->descriptor->version, "1.0");
  EXPECT_NE(third->descriptor, old->descriptor);
}

TEST(Replaced, WorksForAPathThatSomebodyElseHasLoaded) {
  const Folder folder;
  const std::string path = folder.add("good", "p.so");
  void* theirs = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(theirs, nullptr);
  folder.replace("good_v2", "p.so");
  std::vector<Reason> reasons;
  const LoadedPlugin* plugin = load_path(path, &reasons);
  ASSERT_NE(plugin, nullptr) << to_text(reasons.front());
  EXPECT_STREQ(plugin->descriptor->version, "2.0");
}

TEST(Replaced, SharesAnObjectThatSomebodyElseHasLoaded) {
  const Folder folder;
  const std::string path = folder.add("good", "p.so");
  void* theirs = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  std::vector<Reason> reasons;
  const LoadedPlugin* plugin = load_path(path, &reasons);
  ASSERT_NE(plugin, nullptr);
  EXPECT_EQ(plugin->handle, theirs);
}

TEST(Replaced, InPlaceAfterLoadingIsRefused) {
  const Folder folder;
  const std::string path = folder.add("null_init", "p.so");
  std::vector<Reason> reasons;
  ASSERT_NE(load_path(path, &reasons), nullptr);
  fs::last_write_time(path, fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(load_path(path, &reasons), nullptr);
  ASSERT_TRUE(has_code(reasons, Code::kFileChanged));
  EXPECT_NE(to_text(reasons.front()).find("rename"), std::string::npos);
}

TEST(Replaced, AChangedModeIsTheSameContent) {
  const Folder folder;
  const std::string path = folder.add("good", "p.so");
  std::vector<Reason> reasons;
  const LoadedPlugin* plugin = load_path(path, &reasons);
  chmod(path.c_str(), 0700);
  const LoadedPlugin* again = load_path(path, &reasons);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->descriptor, plugin->descriptor);
}

TEST(Replaced, AFileChangedFailureIsNotRemembered) {
  const Folder folder;
  const std::string path = folder.add("larger_op", "p.so");
  const std::shared_ptr<const Candidate> candidate = at(*find(explicit_place(path)), path);
  fs::rename(path, path + ".away");
  std::vector<Reason> reasons;
  EXPECT_EQ(load(candidate, counting_host(), &reasons), nullptr);
  fs::rename(path + ".away", path);  // rename keeps the inode and its times, except ctime
  reasons.clear();
  const std::shared_ptr<const Candidate> later = at(*find(explicit_place(path)), path);
  EXPECT_NE(load(later, counting_host(), &reasons), nullptr);
}

}  // namespace
}  // namespace opdock::testing
