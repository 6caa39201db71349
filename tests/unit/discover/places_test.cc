// SPDX-License-Identifier: Apache-2.0
#include "discover/places.h"

#include <gtest/gtest.h>

#include "base/configured.h"
#include "base/utf8.h"

namespace opdock {
namespace {

TEST(SplitList, DropsEmptyEntries) {
  EXPECT_EQ(split_list("").size(), 0u);
  EXPECT_EQ(split_list(":").size(), 0u);
  EXPECT_EQ(split_list("a:b"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(split_list("::a::b c:"), (std::vector<std::string>{"a", "b c"}));
}

TEST(Utf8, AcceptsWhatIsWellFormed) {
  for (const char* text : {"", "plain", "größe", "λ", "漢字", "\U0001F600", "\u0080", "\u07FF",
                           "\u0800", "\uFFFF", "\U00010000", "\U0010FFFF"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
    EXPECT_EQ(escape_bytes(text), text);
  }
}

TEST(Utf8, RefusesWhatIsNot) {
  for (const char* text : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf",
                           "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80",
                           "\xf5\x80\x80\x80", "\xff", "a\xc3", "\xe2\x82", "\xc3(", "\xe2(\xa1"}) {
    EXPECT_FALSE(is_utf8(text));
    EXPECT_TRUE(is_utf8(escape_bytes(text)));
  }
}

TEST(Utf8, EscapesOnlyTheBadBytes) {
  EXPECT_EQ(escape_bytes("a\xffλ\xc3"), "a\\xffλ\\xc3");
}

std::vector<std::string> paths(const SearchOptions& options) {
  std::vector<std::string> found;
  for (const Place& place : search_places(options)) found.push_back(place.path);
  return found;
}

TEST(Places, ComeInTheDocumentedOrder) {
  SearchOptions options;
  options.environment.add_plugin_path = "/added/one:/added/two";
  options.environment.data_home = "/home/data";
  options.package_path = "/package";
  const std::vector<std::string> found = paths(options);
  const std::vector<std::string> wanted = {"/added/one",
                                           "/added/two",
                                           "/home/data/opdock/plugins",
                                           "/package",
                                           "/etc/opdock/plugins.d",
                                           kConfiguredPluginDir};
  ASSERT_GE(found.size(), wanted.size());
  EXPECT_EQ(std::vector<std::string>(found.begin(), found.begin() + 6), wanted);
}

TEST(Places, OnlyThoseSomebodyAskedForAreConsent) {
  SearchOptions options;
  options.environment.add_plugin_path = "/added";
  options.environment.data_home = "/home/data";
  options.package_path = "/package";
  for (const Place& place : search_places(options)) {
    EXPECT_EQ(place.consent, place.path == "/added") << place.path;
    EXPECT_EQ(place.must_exist, place.path == "/added" || place.path == "/package");
  }
}

TEST(Places, OfThePathVariableReplaceTheDefaults) {
  SearchOptions options;
  options.environment.add_plugin_path = "/added";
  options.environment.plugin_path = "/instead";
  options.environment.data_home = "/home/data";
  options.package_path = "/package";
  EXPECT_EQ(paths(options), (std::vector<std::string>{"/added", "/instead"}));
}

TEST(Places, OfTheProgramReplaceEverything) {
  SearchOptions options;
  options.environment.add_plugin_path = "/added";
  options.environment.plugin_path = "/instead";
  options.plugin_path = "/program";
  options.has_plugin_path = true;
  EXPECT_EQ(paths(options), (std::vector<std::string>{"/program"}));
}

}  // namespace
}  // namespace opdock
