// Tests AT_SECURE: a program with raised privileges starts no build, whatever the caller's PATH
// contains.
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "build_fixture.h"

namespace opdock::testing {
namespace {

class Secure : public BuildFixture {};

TEST_F(Secure, BuildsNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "making a program with raised privileges needs root";
  const char* helper = std::getenv("OPDOCK_TEST_SECURE_HELPER");
  ASSERT_NE(helper, nullptr);
  const std::string program = top + "/helper";
  std::filesystem::copy_file(helper, program);
  ASSERT_EQ(chown(program.c_str(), 65534, 65534), 0);
  ASSERT_EQ(chmod(program.c_str(), 04755), 0);
  for (const char* open : {"", "/source", "/cache"}) {
    std::filesystem::create_directories(top + open);
    ASSERT_EQ(chmod((top + open).c_str(), 0777), 0);
  }
  // A compiler that leaves a file if it is started.
  tool("c++", "touch $TOP/started; echo 'c++ 1.2.3'");
  const std::string command = "'" + program + "' '" + source() + "' '" + top + "/cache/own' 2>&1";
  FILE* output = popen(command.c_str(), "r");
  ASSERT_NE(output, nullptr);
  std::string text;
  char buffer[4096];
  while (std::fgets(buffer, sizeof buffer, output) != nullptr) text += buffer;
  pclose(output);
  if (text.find("secure 1") == text.npos) {
    GTEST_SKIP() << "the kernel did not set AT_SECURE (mounted nosuid?): " << text;
  }
  EXPECT_EQ(text, "secure 1\nbuilt 0\nbuild-privileged\n");
  EXPECT_FALSE(std::filesystem::exists(top + "/started"));
}

}  // namespace
}  // namespace opdock::testing
