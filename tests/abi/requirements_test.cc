// Checks that docs/reference/abi.md explains every numbered requirement of plugin.h and names a
// test that exists.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::set<std::string> numbers(const std::string& text) {
  static const std::regex pattern("OPDOCK-[PH]-[0-9]+");
  return {std::sregex_token_iterator(text.begin(), text.end(), pattern),
          std::sregex_token_iterator()};
}

TEST(Requirements, EachIsExplainedAndHasATest) {
  const std::filesystem::path root = ABI_ROOT;
  const std::set<std::string> stated = numbers(read(root / "core/include/opdock/plugin.h"));
  EXPECT_GE(stated.size(), 10u);
  const std::string doc = read(root / "docs/reference/abi.md");
  // Form of an entry: - **OPDOCK-P-1**: what. If broken: what follows. Test: `Suite.Test`
  static const std::regex row(
      "\\*\\*(OPDOCK-[PH]-[0-9]+)\\*\\*:[^*]+If broken:[^*]+Test: `(\\w+)\\.(\\w+)`");
  std::map<std::string, std::pair<std::string, std::string>> rows;
  for (std::sregex_iterator at(doc.begin(), doc.end(), row), end; at != end; ++at) {
    rows[(*at)[1]] = {(*at)[2], (*at)[3]};
  }
  std::string tests;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "tests")) {
    if (entry.path().extension() == ".cc") tests += read(entry.path());
  }
  for (const std::string& number : stated) {
    ASSERT_TRUE(rows.count(number)) << number << " is not in docs/reference/abi.md";
    const auto& [suite, name] = rows[number];
    const std::regex test("TEST(_F|_P)?\\(" + suite + ", " + name + "\\)");
    EXPECT_TRUE(std::regex_search(tests, test)) << number << ": no test " << suite << "." << name;
  }
  for (const auto& [number, test] : rows) {
    EXPECT_TRUE(stated.count(number))
        << number << " is in docs/reference/abi.md, and plugin.h has no such one";
  }
}

}  // namespace
