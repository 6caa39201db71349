// Tests what the fault tables do not cover about JSON: what is accepted, and as which value.
// SPDX-License-Identifier: Apache-2.0
#include "note/json.h"

#include <gtest/gtest.h>

namespace opdock {
namespace {

Json parse(std::string_view text) {
  std::string problem;
  const std::optional<Json> json = parse_json(text, &problem);
  EXPECT_TRUE(json) << text << ": " << problem;
  return json.value_or(Json());
}

TEST(Json, ReadsEachKindOfValue) {
  EXPECT_EQ(parse("null").type, Json::Type::kNull);
  EXPECT_TRUE(parse(" true ").boolean);
  EXPECT_EQ(parse("-9223372036854775808").integer, INT64_MIN);
  EXPECT_EQ(parse("9223372036854775807").integer, INT64_MAX);
  EXPECT_EQ(parse("1.5e3").real, 1500.0);
  EXPECT_EQ(parse("1.0").type, Json::Type::kReal) << "1.0 is not an integer";
  EXPECT_EQ(parse(R"("a\"\\\/\b\f\n\r\tz")").text, "a\"\\/\b\f\n\r\tz");
  EXPECT_EQ(parse(R"("\u00e9\ud83d\ude80")").text, "\xc3\xa9\xf0\x9f\x9a\x80");
  EXPECT_EQ(parse("\"\xc3\xa9\"").text, "\xc3\xa9");
  EXPECT_TRUE(parse("{}").keys.empty());
  EXPECT_TRUE(parse("[]").items.empty());
}

TEST(Json, KeepsOrderAndNesting) {
  const Json json = parse(R"({"b":[1,[2,{"c":"d"}],3],"a":{"b":null}})");
  ASSERT_EQ(json.keys, (std::vector<std::string>{"b", "a"}));
  ASSERT_EQ(json.find("b")->items.size(), 3u);
  EXPECT_EQ(json.find("b")->items[1].items[1].find("c")->text, "d");
  EXPECT_EQ(json.find("b")->items[2].integer, 3);
  EXPECT_EQ(json.find("a")->find("b")->type, Json::Type::kNull);
  EXPECT_EQ(json.find("c"), nullptr);
  EXPECT_EQ(json.items[0].find("b"), nullptr) << "an array has no members";
}

TEST(Json, AllowsSixteenLevels) {
  const std::string at_limit = std::string(16, '[') + std::string(16, ']');
  parse(at_limit);
  std::string problem;
  EXPECT_FALSE(parse_json("[" + at_limit + "]", &problem));
  EXPECT_EQ(problem, "more than 16 levels of nesting");
}

TEST(Json, NamesThePlaceOfAProblem) {
  std::string problem;
  EXPECT_FALSE(parse_json(R"({"a":1,"a":2})", &problem));
  EXPECT_EQ(problem, "the key \"a\" twice");
  EXPECT_FALSE(parse_json("{\"a\":\x01}", &problem));
  EXPECT_NE(problem.find("at byte 6"), std::string::npos) << problem;
  EXPECT_EQ(problem.find('\x01'), std::string::npos) << "raw bytes do not reach a report";
  EXPECT_FALSE(parse_json("\"\xff\xfe\"", &problem));
  EXPECT_EQ(problem.find('\xff'), std::string::npos) << problem;
}

}  // namespace
}  // namespace opdock
