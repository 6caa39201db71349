// Tests policies: where they may be set, which place wins, and that the message for a wrong value
// names its place.
// SPDX-License-Identifier: Apache-2.0
#include "chain/settings.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "folder.h"
#include "trust/trust.h"

namespace opdock::testing {
namespace {

class SettingsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = Trust(environment_).check_path(folder_.path()).reason) {
      GTEST_SKIP() << "the build folder is not trusted: " << to_text(*reason);
    }
  }
  // Returns false and sets problem_ if the settings cannot be read.
  bool read(const opdock_options* options = nullptr) {
    settings_ = Settings();
    problems_.clear();
    read_settings(files_, environment_, options, &settings_, &problems_);
    problem_ = problems_.empty() ? "" : problems_.front();
    return problems_.empty();
  }
  std::string config(const std::string& name, const std::string& text) {
    files_.push_back(folder_.write(name, text));
    return files_.back();
  }

  const Folder folder_;
  std::vector<std::string> files_;
  SearchEnvironment environment_;
  Settings settings_;
  std::vector<std::string> problems_;
  std::string problem_;  // the first problem
};

TEST_F(SettingsTest, HaveDefaults) {
  ASSERT_TRUE(read());
  EXPECT_EQ(settings_.build, (Setting{"auto", "default"}));
  EXPECT_EQ(settings_.jit, (Setting{"auto", "default"}));
  EXPECT_EQ(settings_.fallback, (Setting{"warn", "default"}));
}

TEST_F(SettingsTest, TheProgramWinsOverTheEnvironmentOverTheUserOverTheSystem) {
  const std::string system = config("system.toml", "build = \"never\"\njit = \"never\"\n");
  ASSERT_TRUE(read());
  EXPECT_EQ(settings_.build, (Setting{"never", system + ":1"}));
  EXPECT_EQ(settings_.jit, (Setting{"never", system + ":2"}));
  const std::string user = config("user.toml", "\n# mine\nbuild = \"auto\"\n");
  ASSERT_TRUE(read());
  EXPECT_EQ(settings_.build, (Setting{"auto", user + ":3"}));
  EXPECT_EQ(settings_.jit.place, system + ":2");
  environment_.build = "always";
  ASSERT_TRUE(read());
  EXPECT_EQ(settings_.build, (Setting{"always", "OPDOCK_BUILD"}));
  opdock_options options{};
  options.struct_size = sizeof options;
  options.build = "never";
  ASSERT_TRUE(read(&options));
  EXPECT_EQ(settings_.build, (Setting{"never", "opdock_options"}));
}

TEST_F(SettingsTest, OfAnOlderProgramAreNotRead) {
  opdock_options options{};
  options.struct_size = offsetof(opdock_options, build);
  options.build = "nonsense";
  EXPECT_TRUE(read(&options));
}

TEST_F(SettingsTest, AWrongValueNamesItsPlace) {
  environment_.fallback = "quiet";
  EXPECT_FALSE(read());
  EXPECT_NE(problem_.find("OPDOCK_FALLBACK"), std::string::npos) << problem_;
  EXPECT_NE(problem_.find("\"quiet\""), std::string::npos) << problem_;
  EXPECT_NE(problem_.find("warn, error, silent"), std::string::npos) << problem_;
  environment_.fallback.reset();
  opdock_options options{};
  options.struct_size = sizeof options;
  options.jit = "sometimes";
  EXPECT_FALSE(read(&options));
  EXPECT_NE(problem_.find("opdock_options"), std::string::npos) << problem_;
  const std::string path = config("config.toml", "\nbuild = \"nver\"\n");
  EXPECT_FALSE(read());
  EXPECT_NE(problem_.find(path + ":2"), std::string::npos) << problem_;
  EXPECT_NE(problem_.find("did you mean \"never\""), std::string::npos) << problem_;
}

TEST_F(SettingsTest, EachProblemIsToldAndTheRestIsRead) {
  config("broken.toml", "build =");
  const std::string path = config("config.toml", "build = \"nver\"\njit = \"never\"\nx = 1\n");
  environment_.fallback = "quiet";
  EXPECT_FALSE(read());
  EXPECT_EQ(problems_.size(), 4u);
  EXPECT_EQ(settings_.build, (Setting{"auto", "default"}));
  EXPECT_EQ(settings_.jit, (Setting{"never", path + ":2"}));
  EXPECT_EQ(settings_.fallback, (Setting{"warn", "default"}));
}

TEST_F(SettingsTest, ArchitecturesComeFromTheFile) {
  const std::string path = config("config.toml", "cuda-archs = \"9.0a\"\nhip-archs = \"gfx90a\"\n");
  ASSERT_TRUE(read()) << problem_;
  EXPECT_EQ(settings_.cuda_archs, (Setting{"9.0a", path + ":1"}));
  EXPECT_EQ(settings_.hip_archs, (Setting{"gfx90a", path + ":2"}));
}

struct BadFile {
  const char* name;
  const char* text;
  mode_t mode;
  const char* told;
};

class BadConfig : public SettingsTest, public ::testing::WithParamInterface<BadFile> {};

TEST_P(BadConfig, IsAnErrorThatNamesIt) {
  const std::string path = config("config.toml", GetParam().text);
  chmod(path.c_str(), GetParam().mode);
  EXPECT_FALSE(read());
  EXPECT_NE(problem_.find(path), std::string::npos) << problem_;
  EXPECT_NE(problem_.find(GetParam().told), std::string::npos) << problem_;
}

const BadFile kBadFiles[] = {
    {"not_toml", "build =", 0600, "not TOML"},
    {"unknown_key", "biuld = \"auto\"\n", 0600, "did you mean \"build\""},
    {"number", "build = 1\n", 0600, "wanted a text"},
    {"table", "[build]\nx = 1\n", 0600, "wanted a text"},
    {"written_by_all", "build = \"auto\"\n", 0666, "chmod go-w"},
};

INSTANTIATE_TEST_SUITE_P(Row, BadConfig, ::testing::ValuesIn(kBadFiles),
                         [](const auto& info) { return std::string(info.param.name); });

// Whoever can replace the file, or a folder above it, controls its content.
TEST_F(SettingsTest, AFileInAFolderThatOthersCanWriteIsRefused) {
  std::filesystem::create_directory(folder_.path("shared"));
  const std::string path = config("shared/config.toml", "build = \"never\"\n");
  chmod(folder_.path("shared").c_str(), 0777);
  EXPECT_FALSE(read());
  EXPECT_NE(problem_.find("everybody can write it"), std::string::npos) << problem_;
  // like /tmp: only the file's owner can replace the file
  chmod(folder_.path("shared").c_str(), 01777);
  EXPECT_TRUE(read()) << problem_;
  std::filesystem::create_symlink("config.toml", folder_.path("shared/link"));
  files_ = {folder_.path("shared/link")};
  EXPECT_TRUE(read()) << problem_;
  if (geteuid() != 0) GTEST_SKIP() << "giving a link away needs root";
  ASSERT_EQ(lchown(files_[0].c_str(), 54321, 0), 0);
  EXPECT_FALSE(read());
  EXPECT_NE(problem_.find("user 54321"), std::string::npos) << problem_;
}

TEST_F(SettingsTest, AFolderOrAFifoInAFilesPlaceIsRefusedAndDoesNotBlock) {
  files_ = {folder_.path()};
  EXPECT_FALSE(read());
  ASSERT_EQ(mkfifo(folder_.path("fifo").c_str(), 0600), 0);
  files_ = {folder_.path("fifo")};
  EXPECT_FALSE(read());
  files_ = {folder_.path("absent")};
  EXPECT_TRUE(read());
}

TEST_F(SettingsTest, UnderRaisedPrivilegesOnlyTheSystemsFileCounts) {
  environment_.config_home = folder_.path();
  EXPECT_EQ(config_files(environment_).size(), 2u);
  EXPECT_EQ(config_files(environment_)[1], folder_.path("opdock/config.toml"));
  environment_.secure = true;
  EXPECT_EQ(config_files(environment_), (std::vector<std::string>{"/etc/opdock/config.toml"}));
}

}  // namespace
}  // namespace opdock::testing
