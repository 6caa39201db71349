// Tests AT_SECURE: a program with raised privileges ignores variables that name places for code.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "folder.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kOther = 65534;  // runs the helper, or owns it

enum class Way { kPlain, kSetUser, kCapability };

// Runs the helper with these variables and returns its output, or "" if it could not start.
std::string run_helper(const std::string& program, Way way, const std::vector<std::string>& set,
                       const std::string& package = "") {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    // Root has every capability already, so the capability case runs as another user.
    if (way == Way::kCapability && (setgid(kOther) != 0 || setuid(kOther) != 0)) _exit(9);
    std::vector<char*> environment, arguments;
    for (const std::string& variable : set) {
      environment.push_back(const_cast<char*>(variable.c_str()));
    }
    environment.push_back(nullptr);
    arguments = {const_cast<char*>(program.c_str())};
    if (!package.empty()) arguments.push_back(const_cast<char*>(package.c_str()));
    arguments.push_back(nullptr);
    execve(program.c_str(), arguments.data(), environment.data());
    _exit(9);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t size; (size = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(size));
  }
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return text;
}

// Returns a copy of the helper that the kernel starts with AT_SECURE. *problem says why there is
// none.
std::string make_helper(const Folder& folder, Way way, std::string* problem) {
  // In its own folder, because the folder of the library, which the helper contains, is a place
  // too.
  fs::create_directory(folder.path("bin"));
  const std::string program = folder.path("bin/helper");
  fs::copy_file(SECURE_HELPER, program);
  chmod(program.c_str(), 0755);
  if (geteuid() != 0) {
    *problem = "making a program with raised privileges needs root";
    return {};
  }
  if (way == Way::kSetUser) {
    if (chown(program.c_str(), kOther, kOther) != 0) *problem = "chown failed";
    chmod(program.c_str(), 04755);
  } else if (way == Way::kCapability) {
    const std::string command = "setcap cap_net_raw+ep " + program + " 2>/dev/null";
    if (std::system(command.c_str()) != 0) *problem = "setcap is missing or refused";
  }
  if (run_helper(program, way, {}).find("secure 1") == std::string::npos) {
    if (problem->empty()) *problem = "the kernel did not set AT_SECURE (mounted nosuid?)";
  }
  return program;
}

struct SecureRow {
  const char* variable;
  const char* value;  // "" stands for the folder with a plugin
};

void PrintTo(const SecureRow& row, std::ostream* out) {
  *out << row.variable;
}

constexpr SecureRow kSecureRows[] = {
    {"OPDOCK_PLUGIN_PATH", ""},     {"OPDOCK_ADD_PLUGIN_PATH", ""},
    {"OPDOCK_PLUGINS_SELECT", "x"}, {"OPDOCK_PLUGINS_DISABLE", "*"},
    {"XDG_DATA_HOME", ""},          {"XDG_CONFIG_HOME", ""},
    {"XDG_CACHE_HOME", ""},         {"HOME", ""},
};

class Secure : public ::testing::TestWithParam<std::tuple<Way, SecureRow>> {};

TEST_P(Secure, VariableIsIgnoredAndReported) {
  const auto& [way, row] = GetParam();
  const Folder folder;
  std::string problem;
  const std::string program = make_helper(folder, way, &problem);
  if (!problem.empty()) GTEST_SKIP() << problem;
  fs::create_directories(folder.path("opdock/plugins"));
  fs::create_directories(folder.path(".local/share/opdock/plugins"));
  folder.add("good");
  folder.add("good", "opdock/plugins/good.so");
  folder.add("good", ".local/share/opdock/plugins/good.so");
  const std::string value = *row.value == '\0' ? folder.path() : row.value;
  const std::string text = run_helper(program, way, {std::string(row.variable) + "=" + value});
  EXPECT_NE(text.find("secure 1"), std::string::npos) << text;
  EXPECT_NE(text.find(std::string("notice variable-ignored: ") + row.variable), std::string::npos)
      << text;
  EXPECT_EQ(text.find("plugin " + folder.path()), std::string::npos) << text;
  EXPECT_NE(text.find("trust a program with raised privileges"), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(SecureRow, Secure,
                         ::testing::Combine(::testing::Values(Way::kSetUser, Way::kCapability),
                                            ::testing::ValuesIn(kSecureRows)),
                         [](const auto& info) {
                           return std::string(std::get<1>(info.param).variable) +
                                  (std::get<0>(info.param) == Way::kSetUser ? "_set_user_id"
                                                                            : "_capability");
                         });

TEST(Secure, WithoutPrivilegesTheVariablesCount) {
  const Folder folder;
  fs::copy_file(SECURE_HELPER, folder.path("helper"));
  chmod(folder.path("helper").c_str(), 0755);
  const std::string path = folder.add("good");
  const std::string text =
      run_helper(folder.path("helper"), Way::kPlain,
                 {"OPDOCK_PLUGIN_PATH=" + folder.path(), "HOME=" + folder.path()});
  EXPECT_NE(text.find("secure 0"), std::string::npos) << text;
  EXPECT_NE(text.find("plugin " + path + " usable"), std::string::npos) << text;
}

// The calling user must not borrow the program's privileges, so files that this user owns are not
// trusted.
TEST(Secure, TheUsersOwnFilesAreNotTrusted) {
  const Folder folder;
  std::string problem;
  const std::string program = make_helper(folder, Way::kCapability, &problem);
  if (!problem.empty()) GTEST_SKIP() << problem;
  fs::create_directory(folder.path("plugins"));
  const std::string theirs = folder.add("good_b", "plugins/theirs.so");
  const std::string roots = folder.add("good", "plugins/roots.so");
  ASSERT_EQ(chown(theirs.c_str(), kOther, kOther), 0);
  const std::string text = run_helper(program, Way::kCapability, {}, folder.path("plugins"));
  if (text.find("untrusted-writable") != std::string::npos) {
    GTEST_SKIP() << "the build folder is not trusted, as everybody can write a folder above it";
  }
  EXPECT_NE(text.find("plugin " + theirs + " rejected untrusted-owner"), std::string::npos) << text;
  EXPECT_NE(text.find("plugin " + roots + " usable"), std::string::npos) << text;
}

}  // namespace
}  // namespace opdock::testing
