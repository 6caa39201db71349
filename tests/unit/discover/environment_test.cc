// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>

#include "discover/catalog.h"

namespace opdock {
namespace {

class SearchVariables : public ::testing::Test {
 protected:
  SearchVariables() {
    for (const char* name :
         {"OPDOCK_PLUGIN_PATH", "OPDOCK_ADD_PLUGIN_PATH", "OPDOCK_PLUGINS_SELECT",
          "OPDOCK_PLUGINS_DISABLE", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"}) {
      unsetenv(name);
    }
    setenv("HOME", "/home/user", 1);
  }
};

TEST_F(SearchVariables, HaveTheXdgDefaults) {
  const SearchEnvironment found = read_search_environment();
  EXPECT_FALSE(found.secure);
  EXPECT_EQ(found.data_home, "/home/user/.local/share");
  EXPECT_EQ(found.config_home, "/home/user/.config");
  EXPECT_EQ(found.cache_home, "/home/user/.cache");
  EXPECT_FALSE(found.plugin_path || found.add_plugin_path || found.select || found.disable);
  EXPECT_TRUE(found.ignored.empty());
}

TEST_F(SearchVariables, AreTakenAsTheyStand) {
  setenv("OPDOCK_PLUGIN_PATH", "/a:/b", 1);
  setenv("OPDOCK_PLUGINS_SELECT", "x*", 1);
  setenv("XDG_DATA_HOME", "/data", 1);
  const SearchEnvironment found = read_search_environment();
  EXPECT_EQ(found.plugin_path, "/a:/b");
  EXPECT_EQ(found.select, "x*");
  EXPECT_EQ(found.data_home, "/data");
}

TEST_F(SearchVariables, SetToNothingCountAsNotSet) {
  setenv("OPDOCK_PLUGIN_PATH", "", 1);
  setenv("XDG_DATA_HOME", "", 1);
  const SearchEnvironment found = read_search_environment();
  EXPECT_FALSE(found.plugin_path);
  EXPECT_EQ(found.data_home, "/home/user/.local/share");
}

TEST_F(SearchVariables, RelativeBaseFoldersAreIgnoredAndReported) {
  setenv("XDG_CONFIG_HOME", "relative", 1);
  const SearchEnvironment found = read_search_environment();
  EXPECT_EQ(found.config_home, "/home/user/.config");
  ASSERT_EQ(found.ignored.size(), 1u);
  EXPECT_EQ(found.ignored[0].code, Code::kVariableIgnored);
}

TEST_F(SearchVariables, WithoutAHomeThereIsNoUserPlace) {
  unsetenv("HOME");
  EXPECT_EQ(read_search_environment().data_home, "");
  setenv("HOME", "relative", 1);
  EXPECT_EQ(read_search_environment().data_home, "");
}

}  // namespace
}  // namespace opdock
