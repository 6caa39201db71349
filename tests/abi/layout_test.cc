// Compares the layout of every public struct with the recorded one, because a changed layout is a
// changed ABI. When the ABI is extended on purpose, append the new lines to layout.txt; changing an
// existing line needs a new major version (docs/reference/abi.md).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "opdock/attention.h"
#include "opdock/cancel.h"
#include "opdock/compile.h"
#include "opdock/formula_cpu.h"
#include "opdock/gemm.h"
#include "opdock/opdock.h"
#include "opdock/parallel.h"
#include "opdock/retain.h"
#include "opdock/tuning.h"

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

// Returns "type.member" for every struct that a header defines.
std::set<std::string> members_of(std::string header) {
  for (size_t at; (at = header.find("/*")) != header.npos;)
    header.erase(at, header.find("*/", at) + 2 - at);
  // A function pointer's name precedes the parameters; every other declaration ends with its name.
  static const std::regex function("\\(\\*(\\w+)\\)\\(");
  static const std::regex name("(\\w+)(\\[\\w+\\])*\\s*(,|$)");
  const std::string opening = "typedef struct ";
  std::set<std::string> found;
  for (size_t at = header.find(opening); at != header.npos; at = header.find(opening, at + 1)) {
    const size_t begin = at + opening.size();
    const std::string type = header.substr(begin, header.find(' ', begin) - begin);
    const size_t body = begin + type.size() + 2;
    if (header[body - 1] != '{') continue;  // only a declaration
    const size_t end = header.find("\n} " + type + ";", body);
    std::string declaration;
    int depth = 0;  // brace depth inside a union
    for (const char c : header.substr(body, end - body)) {
      depth += (c == '{') - (c == '}');
      if (c != ';' || depth > 0) {
        declaration += c;
        continue;
      }
      std::smatch match;
      if (std::regex_search(declaration, match, function)) {
        found.insert(type + "." + match[1].str());
      } else {
        std::sregex_iterator one(declaration.begin(), declaration.end(), name);
        EXPECT_NE(one, std::sregex_iterator()) << declaration;
        for (; one != std::sregex_iterator(); ++one) found.insert(type + "." + (*one)[1].str());
      }
      declaration.clear();
    }
  }
  return found;
}

TEST(Layout, CoversEveryMemberOfEveryStruct) {
  std::set<std::string> listed, found;
  std::istringstream lines(now());
  for (std::string word, rest; lines >> word && std::getline(lines, rest);)
    if (word.find('.') != word.npos) listed.insert(word);
  for (const auto& entry : std::filesystem::directory_iterator(ABI_INCLUDE "/opdock")) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream file(entry.path());
    std::stringstream header;
    header << file.rdbuf();
    found.merge(members_of(header.str()));
  }
  for (const std::string& member : found) EXPECT_TRUE(listed.contains(member)) << member;
  for (const std::string& member : listed) EXPECT_TRUE(found.contains(member)) << member;
}

}  // namespace
