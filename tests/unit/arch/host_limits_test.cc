// SPDX-License-Identifier: Apache-2.0
#include "arch/host_limits.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace opdock {
namespace {

std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(HostLimits, FromTheHeadersCheck) {
  // The forms that releases have used: exclusive or inclusive bounds, and checks of other clangs
  // first.
  const std::tuple<const char*, uint32_t, uint32_t> rows[] = {
      {"#if __GNUC__ > 15\n\n#error -- unsupported GNU version! gcc versions later than "
       "15\n#endif\n"
       "#if (__GRCO_CLANG_COMPILER__ == 1) && ((__clang_major__ < 16) || (__clang_major__ > 19))\n"
       "#error -- unsupported Grace clang version!\n"
       "#if (__clang_major__ >= 23)\n#error -- unsupported HOS clang version!\n"
       "#if (__clang_major__ >= 21) || (__clang_major__ < 3) || ((__clang_major__ == 3) && "
       "(__clang_minor__ < 3))\n#error -- unsupported clang version! less than 21\n",
       15, 20},
      {"#if __GNUC__ > 9\n#error -- unsupported GNU version! gcc versions later than 9\n"
       "#if (__clang_major__ > 8) || (__clang_major__ < 3)\n#error -- unsupported clang version!\n",
       9, 8},
      {"#if __GNUC__>12\n#error -- unsupported GNU version!\n", 12, 0},
      {"#if (__clang_major__>= 15)\n#error -- unsupported clang version!\n", 0, 14},
  };
  for (const auto& [text, gcc, clang] : rows) {
    const auto limits = read_host_limits(text, "host_config.h");
    ASSERT_TRUE(limits) << text;
    EXPECT_EQ(limits->gcc, gcc) << text;
    EXPECT_EQ(limits->clang, clang) << text;
    EXPECT_EQ(limits->source, "host_config.h");
  }
}

TEST(HostLimits, OfNoSuchHeader) {
  for (const char* text : {"", "#error", "#error -- unsupported GNU version!",
                           "#if __GNUC__\n#error -- unsupported GNU version!",
                           "#if __GNUC__ > x\n#error -- unsupported GNU version!", "#if __GNUC__ >",
                           "__GNUC__ > 15"}) {
    EXPECT_FALSE(read_host_limits(text, "")) << text;
  }
}

// The table must say the same as the header of this machine's toolkit, if it is installed.
TEST(HostLimits, TheTableAgreesWithTheToolkitHere) {
  const std::string path = "/usr/local/cuda-13.0/include/crt/host_config.h";
  const auto limits = read_host_limits(read(path.c_str()), path);
  if (!limits) GTEST_SKIP() << "no CUDA 13.0 in /usr/local/cuda-13.0";
  const auto documented = documented_host_limits(Version{13, 0, 88});
  ASSERT_TRUE(documented);
  EXPECT_EQ(limits->gcc, documented->gcc);
  EXPECT_EQ(limits->clang, documented->clang);
}

TEST(HostLimits, TheTableKnowsNoOtherReleases) {
  EXPECT_FALSE(documented_host_limits(Version{10, 2}));
  EXPECT_FALSE(documented_host_limits(Version{13, 1}));
  EXPECT_FALSE(documented_host_limits(Version{}));
  uint32_t gcc = 0, clang = 0;  // newer releases only raise the limits
  for (const Version& release : {Version{11, 0}, Version{11, 1}, Version{11, 4}, Version{11, 8},
                                 Version{12, 0}, Version{12, 4}, Version{12, 9}, Version{13, 0}}) {
    const auto limits = documented_host_limits(release);
    ASSERT_TRUE(limits) << release.text();
    EXPECT_GE(limits->gcc, gcc);
    EXPECT_GE(limits->clang, clang);
    gcc = limits->gcc;
    clang = limits->clang;
  }
}

}  // namespace
}  // namespace opdock
