// Tests files that somebody else could have written: they are listed, but never loaded without
// consent.
// SPDX-License-Identifier: Apache-2.0
#include "trust/trust.h"

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

constexpr uid_t kStranger = 54321;  // no account has it

// Returns why the tests' own folder is not trusted. It must be trusted, or no test can show what
// spoils trust.
std::optional<Reason> reason_against_build_folder() {
  return Trust(SearchEnvironment{}).check_path(CASE_PLUGINS).reason;
}

struct TrustRow {
  const char* name;
  Code code;
  bool needs_root;                                     // to change the owner of a file
  std::function<void(const Folder& folder)> break_it;  // changes plugins/bad.so
};

void PrintTo(const TrustRow& row, std::ostream* out) {
  *out << row.name;
}

void give_away(const std::string& path) {
  ASSERT_EQ(lchown(path.c_str(), kStranger, 0), 0);
}

// Moves plugins/bad.so into the folder `to` and leaves a symbolic link in its place.
void link_from(const Folder& f, const std::string& to) {
  fs::create_directories(f.path(to));
  fs::rename(f.path("plugins/bad.so"), f.path(to + "/real"));
  fs::create_symlink(f.path(to + "/real"), f.path("plugins/bad.so"));
}

const TrustRow kTrustRows[] = {
    {"file_written_by_all", Code::kUntrustedWritable, false,
     [](const Folder& f) { chmod(f.path("plugins/bad.so").c_str(), 0757); }},
    {"file_written_by_a_group", Code::kUntrustedWritable, true,
     [](const Folder& f) {
       ASSERT_EQ(chown(f.path("plugins/bad.so").c_str(), 0, kStranger), 0);
       chmod(f.path("plugins/bad.so").c_str(), 0775);
     }},
    {"file_of_a_stranger", Code::kUntrustedOwner, true,
     [](const Folder& f) { give_away(f.path("plugins/bad.so")); }},
    {"link_to_a_strangers_file", Code::kUntrustedOwner, true,
     [](const Folder& f) {
       link_from(f, "other");
       give_away(f.path("other/real"));
     }},
    {"link_into_a_folder_written_by_all", Code::kUntrustedWritable, false,
     [](const Folder& f) {
       link_from(f, "other");
       chmod(f.path("other").c_str(), 0777);
     }},
    {"link_into_a_strangers_folder", Code::kUntrustedOwner, true,
     [](const Folder& f) {
       link_from(f, "other");
       give_away(f.path("other"));
     }},
    {"link_below_a_folder_written_by_all", Code::kUntrustedWritable, false,
     [](const Folder& f) {
       link_from(f, "other/deep/deeper");
       chmod(f.path("other").c_str(), 0777);
     }},
    {"link_by_way_of_a_folder_written_by_all", Code::kUntrustedWritable, false,
     [](const Folder& f) {
       // bad.so -> way/link -> safe/real: whoever can write `way` decides where the link leads.
       link_from(f, "safe");
       fs::create_directory(f.path("way"));
       fs::remove(f.path("plugins/bad.so"));
       fs::create_symlink(f.path("safe/real"), f.path("way/link"));
       fs::create_symlink("../way/link", f.path("plugins/bad.so"));
       chmod(f.path("way").c_str(), 0777);
     }},
};

class Spoilt : public ::testing::TestWithParam<TrustRow> {};

TEST_P(Spoilt, FileIsListedAndNotLoadedAndTheOthersAre) {
  if (const std::optional<Reason> reason = reason_against_build_folder()) {
    GTEST_SKIP() << "the build folder is not trusted: " << to_text(*reason);
  }
  if (GetParam().needs_root && geteuid() != 0) GTEST_SKIP() << "giving a file away needs root";
  const Folder folder;
  fs::create_directory(folder.path("plugins"));
  folder.add("good", "plugins/good.so");
  folder.add("good_b", "plugins/bad.so");
  GetParam().break_it(folder);
  const SearchOptions options = package_place(folder.path("plugins"));
  const std::shared_ptr<const Candidate> bad = at(*find(options), folder.path("plugins/bad.so"));
  ASSERT_NE(bad, nullptr);
  EXPECT_EQ(bad->verdict.state, State::kRejected);
  EXPECT_TRUE(has_code(bad->verdict.reasons, GetParam().code)) << describe(*bad);
  std::vector<Reason> reasons;
  const int before = count_of("good_b");
  EXPECT_EQ(load(bad, counting_host(), &reasons), nullptr);
  EXPECT_EQ(count_of("good_b"), before);
  expect_good_still_loads(options);
  // An explicit path, and the user's own variable, are consent.
  EXPECT_EQ(at(*find(explicit_place(folder.path("plugins"))), bad->path)->verdict.state,
            State::kUsable);
  SearchOptions variable;
  variable.environment.plugin_path = folder.path("plugins");
  EXPECT_EQ(at(*find(variable), bad->path)->verdict.state, State::kUsable);
}

INSTANTIATE_TEST_SUITE_P(TrustRow, Spoilt, ::testing::ValuesIn(kTrustRows),
                         [](const auto& info) { return std::string(info.param.name); });

struct FolderRow {
  const char* name;
  Code code;
  bool needs_root;
  std::function<void(const Folder& folder)> break_it;  // changes a/plugins or a folder above it
  const char* place = "a/plugins";
};

void PrintTo(const FolderRow& row, std::ostream* out) {
  *out << row.name;
}

const FolderRow kFolderRows[] = {
    {"written_by_all", Code::kUntrustedWritable, false,
     [](const Folder& f) { chmod(f.path("a/plugins").c_str(), 0777); }},
    {"sticky_like_tmp", Code::kUntrustedWritable, false,
     [](const Folder& f) { chmod(f.path("a/plugins").c_str(), 01777); }},
    {"below_one_written_by_all", Code::kUntrustedWritable, false,
     [](const Folder& f) { chmod(f.path("a").c_str(), 0777); }},
    {"of_a_stranger_in_a_sticky_one", Code::kUntrustedOwner, true,
     [](const Folder& f) {
       chmod(f.path("a").c_str(), 01777);
       give_away(f.path("a/plugins"));
     }},
    {"below_a_strangers_in_a_sticky_one", Code::kUntrustedOwner, true,
     [](const Folder& f) {
       fs::create_directory(f.path("deep"));
       fs::rename(f.path("a"), f.path("deep/a"));
       chmod(f.path().c_str(), 01777);
       give_away(f.path("deep"));
     },
     "deep/a/plugins"},
    {"below_a_strangers_sticky_one", Code::kUntrustedOwner, true,
     [](const Folder& f) {  // a sticky folder's owner may rename what is in it
       chmod(f.path("a").c_str(), 01777);
       give_away(f.path("a"));
     }},
    {"reached_by_a_strangers_link_in_a_sticky_one", Code::kUntrustedOwner, true,
     [](const Folder& f) {
       fs::create_directory(f.path("way"));
       fs::create_symlink("../a/plugins", f.path("way/link"));
       chmod(f.path("way").c_str(), 01777);
       give_away(f.path("way/link"));
     },
     "way/link"},
    {"below_one_written_by_all_in_a_sticky_one", Code::kUntrustedWritable, false,
     [](const Folder& f) {
       chmod(f.path().c_str(), 01777);
       chmod(f.path("a").c_str(), 0777);
     }},
    {"written_by_a_group", Code::kUntrustedWritable, true,
     [](const Folder& f) {
       ASSERT_EQ(chown(f.path("a/plugins").c_str(), 0, kStranger), 0);
       chmod(f.path("a/plugins").c_str(), 0775);
     }},
    {"of_a_stranger", Code::kUntrustedOwner, true,
     [](const Folder& f) { give_away(f.path("a/plugins")); }},
    {"below_a_strangers", Code::kUntrustedOwner, true,
     [](const Folder& f) { give_away(f.path("a")); }},
    {"reached_by_a_link_in_one_written_by_all", Code::kUntrustedWritable, false,
     [](const Folder& f) {
       fs::create_directory(f.path("way"));
       fs::create_symlink("../a/plugins", f.path("way/link"));
       chmod(f.path("way").c_str(), 0777);
     },
     "way/link"},
};

// Records consent for the folder. Expects that --force is needed if, and only if, everybody may
// write the folder.
void expect_consent(const std::string& folder, const SearchEnvironment& environment) {
  const bool is_open = (fs::status(folder).permissions() & fs::perms::others_write) != fs::perms{};
  const Status done = record_consent(folder, environment);
  EXPECT_EQ(done.text.find("--force") != std::string::npos, is_open) << done.text;
  EXPECT_EQ(done.status, is_open ? OPDOCK_INVALID_ARGUMENT : OPDOCK_OK);
  EXPECT_EQ(record_consent(folder, environment, true).text, "");
}

class SpoiltFolder : public ::testing::TestWithParam<FolderRow> {};

TEST_P(SpoiltFolder, LoadsNothingWithoutConsent) {
  if (const std::optional<Reason> reason = reason_against_build_folder()) {
    GTEST_SKIP() << "the build folder is not trusted: " << to_text(*reason);
  }
  if (GetParam().needs_root && geteuid() != 0) GTEST_SKIP() << "giving a file away needs root";
  const Folder folder, home, other;
  fs::create_directories(folder.path("a/plugins"));
  folder.add("good", "a/plugins/good.so");
  GetParam().break_it(folder);
  const std::string place = folder.path(GetParam().place);
  SearchOptions options = package_place(place + ":" + other.path());
  const std::shared_ptr<const Candidate> candidate = at(*find(options), place + "/good.so");
  ASSERT_NE(candidate, nullptr);
  EXPECT_EQ(candidate->verdict.state, State::kRejected);
  EXPECT_TRUE(has_code(candidate->verdict.reasons, GetParam().code)) << describe(*candidate);
  other.add("good");
  expect_good_still_loads(options);
  // `opdock trust` accepts the folder; for a link, both its target and the folder that contains it
  // need consent.
  options.environment.config_home = home.path();
  expect_consent(place, options.environment);
  if (fs::is_symlink(place)) {
    EXPECT_EQ(at(*find(options), place + "/good.so")->verdict.state, State::kRejected);
    expect_consent(fs::path(place).parent_path(), options.environment);
  }
  EXPECT_EQ(at(*find(options), place + "/good.so")->verdict.state, State::kUsable);
}

INSTANTIATE_TEST_SUITE_P(FolderRow, SpoiltFolder, ::testing::ValuesIn(kFolderRows),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Trusted, GroupWritableOfTheUsersOwnGroupIsAccepted) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, whose group has no other member";
  if (const auto reason = reason_against_build_folder())
    GTEST_SKIP() << "the build folder is not trusted: " << to_text(*reason);
  const Folder folder;
  chmod(folder.add("good").c_str(), 0775);
  chmod(folder.path().c_str(), 0775);
  expect_good_still_loads(package_place(folder.path()));
}

// In a sticky folder, nobody else can rename or remove a trusted owner's files.
TEST(Trusted, BelowAStickyFolderIsAccepted) {
  if (const auto reason = reason_against_build_folder())
    GTEST_SKIP() << "the build folder is not trusted: " << to_text(*reason);
  for (const mode_t mode : {01777, 01775}) {
    const Folder folder;
    fs::create_directories(folder.path("a/plugins"));
    folder.add("good", "a/plugins/good.so");
    if (geteuid() == 0) {
      ASSERT_EQ(chown(folder.path("a").c_str(), 0, kStranger), 0);
    }
    chmod(folder.path("a").c_str(), mode);
    expect_good_still_loads(package_place(folder.path("a/plugins")));
    fs::create_symlink("plugins", folder.path("a/link"));
    expect_good_still_loads(package_place(folder.path("a/link")));
  }
}

class Tmp : public ::testing::Test {
 protected:
  void SetUp() override {
    struct stat status{};
    if (stat("/tmp", &status) != 0 || (status.st_mode & 01002) != 01002 || status.st_uid != 0) {
      GTEST_SKIP() << "/tmp is not root's, sticky and written by all here";
    }
  }
  std::optional<Reason> judge(const std::string& path) {
    return Trust(SearchEnvironment{}).check_path(path).reason;
  }
};

TEST_F(Tmp, IsNoPlaceForPlugins) {
  const std::optional<Reason> reason = judge("/tmp");
  ASSERT_TRUE(reason);
  EXPECT_EQ(reason->code, Code::kUntrustedWritable);
}

TEST_F(Tmp, OwnFoldersInItAre) {
  char name[] = "/tmp/opdock-trust-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::optional<Reason> reason = judge(name);
  EXPECT_FALSE(reason) << to_text(*reason);
  if (geteuid() == 0) {  // as if somebody else had made it first
    give_away(name);
    EXPECT_TRUE(judge(name));
  }
  rmdir(name);
}

// Whoever creates a missing folder first owns it.
TEST_F(Tmp, WhatIsNotThereYetIsNot) {
  const std::optional<Reason> reason = judge("/tmp/opdock-is-not-there");
  ASSERT_TRUE(reason);
  EXPECT_EQ(reason->code, Code::kUntrustedWritable);
  EXPECT_NE(to_text(*reason).find("mkdir"), std::string::npos) << to_text(*reason);
}

// ---- the list of consents

class Consent : public ::testing::Test {
 protected:
  Consent() { environment_.config_home = home_.path("config"); }

  std::string record(const std::string& path) {
    const Status done = record_consent(path, environment_);
    status_ = done.status;
    return done.text;
  }
  bool counts(const std::string& path) { return Trust(environment_).check_path(path).has_consent; }

  const Folder home_, plugins_;
  SearchEnvironment environment_;
  opdock_status status_ = OPDOCK_OK;  // status of the last record()
};

TEST_F(Consent, IsRecordedForTheUserAlone) {
  ASSERT_EQ(record(plugins_.path()), "");
  struct stat status{};
  ASSERT_EQ(stat(consent_file(environment_).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  ASSERT_EQ(stat(home_.path("config/opdock").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
  EXPECT_TRUE(counts(plugins_.path()));
}

TEST_F(Consent, GivenTwiceIsRecordedOnce) {
  ASSERT_EQ(record(plugins_.path()), "");
  ASSERT_EQ(record(plugins_.path() + "/"), "");
  EXPECT_EQ(fs::file_size(consent_file(environment_)), plugins_.path().size() + 1);
}

TEST_F(Consent, CoversWhatLiesBelowAndNothingBeside) {
  fs::create_directories(plugins_.path("deep/er"));
  fs::create_directories(plugins_.path("deeper"));
  ASSERT_EQ(record(plugins_.path("deep")), "");
  EXPECT_TRUE(counts(plugins_.path("deep/er")));
  EXPECT_FALSE(counts(plugins_.path("deeper")));
  EXPECT_FALSE(counts(plugins_.path()));
}

TEST_F(Consent, IsForTheFolderAndNotForTheLink) {
  const Folder other;
  fs::create_directory(plugins_.path("real"));
  fs::create_directory_symlink("real", plugins_.path("link"));
  ASSERT_EQ(record(plugins_.path("link")), "");
  EXPECT_TRUE(counts(plugins_.path("real")));
  fs::remove(plugins_.path("link"));
  fs::create_directory_symlink(other.path(), plugins_.path("link"));
  EXPECT_FALSE(counts(plugins_.path("link")));
}

// Consent covers only files that really lie in the named folder.
TEST_F(Consent, CoversALinksTargetAndNotWhereALinkLeads) {
  if (const auto reason = reason_against_build_folder())
    GTEST_SKIP() << "the build folder is not trusted: " << to_text(*reason);
  fs::create_directories(plugins_.path("own/source"));
  fs::create_directories(plugins_.path("open/source"));
  plugins_.add("good", "open/real.so");
  plugins_.write("open/source/plugin.toml", "name = \"axpy\"\n");
  fs::create_symlink("../open/real.so", plugins_.path("own/good.so"));
  fs::create_symlink("../../open/source/plugin.toml", plugins_.path("own/source/plugin.toml"));
  chmod(plugins_.path("open").c_str(), 0777);
  SearchOptions options = package_place(plugins_.path("own"));
  options.environment = environment_;
  const auto link = [&] { return at(*find(options), plugins_.path("own/good.so"))->verdict; };
  const auto is_open = [](const std::vector<Reason>& reasons) {
    return has_code(reasons, Code::kUntrustedWritable);
  };
  const auto source = [&] { return find(options)->sources()[0]->reasons; };
  EXPECT_TRUE(is_open(link().reasons));
  EXPECT_TRUE(is_open(source()));
  // Consent for the link's folder does not cover the target, which everybody can still write.
  ASSERT_EQ(record(plugins_.path("own")), "");
  EXPECT_EQ(link().state, State::kRejected);
  EXPECT_TRUE(is_open(link().reasons));
  EXPECT_TRUE(is_open(source()));
  // Consent for only the target's folder.
  ASSERT_EQ(withdraw_consent(plugins_.path("own"), environment_).text, "");
  expect_consent(plugins_.path("open"), environment_);
  EXPECT_EQ(link().state, State::kUsable);
  EXPECT_FALSE(is_open(source()));
  // Now everybody can write the link's own folder.
  chmod(plugins_.path("own").c_str(), 0777);
  EXPECT_TRUE(is_open(link().reasons));
}

TEST_F(Consent, IsWithdrawn) {
  fs::create_directories(plugins_.path("a/b"));
  ASSERT_EQ(record(plugins_.path("a")), "");
  ASSERT_EQ(record(plugins_.path("a/b")), "");
  ASSERT_EQ(withdraw_consent(plugins_.path("a/"), environment_).text, "");
  EXPECT_FALSE(counts(plugins_.path("a")));
  EXPECT_TRUE(counts(plugins_.path("a/b")));
  // A removed folder can be named only as it is listed.
  fs::remove_all(plugins_.path("a"));
  ASSERT_EQ(withdraw_consent(plugins_.path("a/b"), environment_).text, "");
  EXPECT_TRUE(Trust(environment_).consents().empty());
  const Status again = withdraw_consent(plugins_.path("a"), environment_);
  EXPECT_NE(again.text.find("--list"), std::string::npos) << again.text;
  EXPECT_EQ(again.status, OPDOCK_INVALID_ARGUMENT);
}

TEST_F(Consent, IsNotTakenFromAFileThatOthersCanReplace) {
  ASSERT_EQ(record(plugins_.path()), "");
  chmod(home_.path("config/opdock").c_str(), 0777);
  EXPECT_FALSE(counts(plugins_.path()));
  EXPECT_EQ(Trust(environment_).notices().size(), 1u);
  EXPECT_NE(record(plugins_.path()), "");
  EXPECT_EQ(status_, OPDOCK_INTERNAL);
}

TEST_F(Consent, RefusesWhatIsNoFolder) {
  for (const std::string& path : {std::string(), std::string("relative"),
                                  std::string("/nowhere/at/all"), plugins_.add("good")}) {
    EXPECT_NE(record(path), "") << path;
    EXPECT_EQ(status_, OPDOCK_INVALID_ARGUMENT);
  }
}

// Consent for / would trust every plugin in every folder, including /tmp.
TEST_F(Consent, RefusesTheWholeMachineUnlessForced) {
  for (const char* const root : {"/", "//.", "/proc/../"}) {
    EXPECT_NE(record(root).find("found /, "), std::string::npos) << root;
    EXPECT_EQ(status_, OPDOCK_INVALID_ARGUMENT);
  }
  EXPECT_FALSE(fs::exists(consent_file(environment_)));
  EXPECT_EQ(record_consent("/", environment_, true).text, "");
  EXPECT_TRUE(counts(plugins_.path()));
}

TEST_F(Consent, NeedsAHome) {
  environment_.config_home.clear();
  EXPECT_NE(record(plugins_.path()).find("HOME"), std::string::npos);
}

TEST_F(Consent, IsNotTakenFromAFileThatOthersCanWrite) {
  ASSERT_EQ(record(plugins_.path()), "");
  chmod(consent_file(environment_).c_str(), 0622);
  Trust trust(environment_);
  EXPECT_FALSE(trust.check_path(plugins_.path()).has_consent);
  ASSERT_EQ(trust.notices().size(), 1u);
  EXPECT_NE(to_text(trust.notices()[0]).find("chmod 600"), std::string::npos);
}

TEST_F(Consent, IsNotTakenFromAStrangersFile) {
  if (geteuid() != 0) GTEST_SKIP() << "giving a file away needs root";
  ASSERT_EQ(record(plugins_.path()), "");
  give_away(consent_file(environment_));
  EXPECT_FALSE(counts(plugins_.path()));
}

TEST_F(Consent, IsNotTakenThroughALink) {
  ASSERT_EQ(record(plugins_.path()), "");
  const std::string file = consent_file(environment_);
  fs::rename(file, file + ".real");
  fs::create_symlink(file + ".real", file);
  EXPECT_FALSE(counts(plugins_.path()));
}

TEST_F(Consent, IgnoresLinesThatAreNoAbsolutePath) {
  ASSERT_EQ(record(plugins_.path()), "");
  std::ofstream(consent_file(environment_)) << "relative\n\n# a comment\n" << plugins_.path();
  EXPECT_TRUE(counts(plugins_.path()));
}

TEST_F(Consent, AListThatIsAFifoDoesNotBlock) {
  fs::create_directories(home_.path("config/opdock"));
  mkfifo(consent_file(environment_).c_str(), 0600);
  EXPECT_FALSE(counts(plugins_.path()));
}

TEST_F(Consent, CannotBeRecordedInAReadOnlyHome) {
  environment_.config_home = "/proc/nowhere";
  EXPECT_NE(record(plugins_.path()), "");
  EXPECT_EQ(status_, OPDOCK_INTERNAL);
}

}  // namespace
}  // namespace opdock::testing
