// The layout of every public struct, as it was recorded: a change of it is a change of the ABI.
// Where the ABI is meant to grow, append the new lines to layout.txt; changing a line needs a new
// major version (docs/abi.md).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "opdock/compile.h"
#include "opdock/opdock.h"

namespace {

std::string now() {
  std::ostringstream out;
#define STRUCT(type) out << #type << " size " << sizeof(type) << " align " << alignof(type) << "\n";
#define MEMBER(type, member)                                                                     \
  out << #type << "." << #member << " " << offsetof(type, member) << " " << sizeof(type::member) \
      << "\n";
#include "layout.def"
#undef STRUCT
#undef MEMBER
  return out.str();
}

TEST(Layout, IsTheRecordedOne) {  // OPDOCK-H-8
  std::ifstream file(ABI_LAYOUT);
  std::stringstream recorded;
  recorded << file.rdbuf();
  EXPECT_EQ(now(), recorded.str()) << "the layout of a public struct has changed; now it is\n"
                                   << now();
}

// Every member of every struct in the headers stands in layout.def.
TEST(Layout, CoversEveryStruct) {
  std::set<std::string> listed;
  std::istringstream lines(now());
  for (std::string word, rest; lines >> word && std::getline(lines, rest);)
    listed.insert(word.substr(0, word.find('.')));
  int found = 0;
  for (const char* const header : {"plugin.h", "opdock.h", "compile.h"}) {
    std::ifstream file(std::string(ABI_INCLUDE) + "/opdock/" + header);
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("typedef struct ", 0) != 0 || line.find('{') == std::string::npos) continue;
      std::string name = line.substr(15, line.find(' ', 15) - 15);
      EXPECT_TRUE(listed.count(name)) << name;
      ++found;
    }
  }
  EXPECT_EQ(static_cast<size_t>(found), listed.size());
}

}  // namespace
