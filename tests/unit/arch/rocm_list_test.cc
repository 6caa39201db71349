// SPDX-License-Identifier: Apache-2.0
#include "arch/rocm_list.h"

#include <gtest/gtest.h>

namespace opdock {
namespace {

TEST(RocmList, Grammar) {
  const std::pair<const char*, const char*> rows[] = {
      {"gfx90a", "gfx90a"},
      {"gfx942;gfx90a", "gfx90a;gfx942"},
      {"gfx906 gfx1030,gfx1100", "gfx1030;gfx1100;gfx906"},
      {"gfx90a;gfx90a;", "gfx90a"},
      {"gfx90a:xnack+", "gfx90a:xnack+"},
      {"gfx90a:xnack-:sramecc+", "gfx90a:sramecc+:xnack-"},
      {"gfx90a:xnack+;gfx90a:xnack-", "gfx90a:xnack+;gfx90a:xnack-"},
      {"gfx9-generic;gfx9-4-generic;gfx10-3-generic",
       "gfx10-3-generic;gfx9-4-generic;gfx9-generic"},
  };
  for (const auto& [text, wanted] : rows) {
    Reason reason{};
    const std::optional<RocmList> list = parse_rocm_list(text, "--hip-archs", &reason);
    ASSERT_TRUE(list) << text << ": " << to_text(reason);
    EXPECT_EQ(to_text(list->targets), wanted) << text;
    EXPECT_FALSE(list->native);
  }
  Reason reason{};
  EXPECT_TRUE(parse_rocm_list("native", "", &reason)->native);
}

TEST(RocmList, WhatIsRefusedIsNamed) {
  const std::tuple<const char*, const char*, const char*> rows[] = {
      {"90a", "\"90a\" at character 1 ", "write gfx90a"},
      {"gfx90a;GFX942", "\"GFX942\" at character 8 ", "write gfx942"},
      {"gfx90a:xnack", "\"gfx90a:xnack\"", "features are sramecc and xnack"},
      {"gfx90a:tgsplit+", "\"gfx90a:tgsplit+\"", "features are sramecc and xnack"},
      {"gfx90a:xnack+:xnack-", "\"gfx90a:xnack+:xnack-\"", "each once"},
      {"gfx90a:", "\"gfx90a:\"", "features"},
      {"sm_90", "\"sm_90\"", "correct the item"},
      {"9.0", "\"9.0\"", "correct the item"},
      {"all", "\"all\"", "name the processors"},
      {"gfx", "\"gfx\"", "correct the item"},
      {"gfx-generic", "\"gfx-generic\"", "correct the item"},
      {"gfx9xyz", "\"gfx9xyz\"", "correct the item"},
      {"gfx90a;gfx90a:xnack+", "\"gfx90a:xnack+\" at character 8 ", "gfx90a stands earlier"},
      {"gfx90a:xnack+;gfx90a:sramecc+", "\"gfx90a:sramecc+\"", "gfx90a:xnack+ stands earlier"},
      {"gfx90a:xnack+:sramecc+;gfx90a:xnack-", "\"gfx90a:xnack-\"", "name the same features"},
      {"", "no architecture", "correct the item"},
  };
  for (const auto& [text, found, advice] : rows) {
    Reason reason{};
    ASSERT_FALSE(parse_rocm_list(text, "PYTORCH_ROCM_ARCH", &reason)) << text;
    EXPECT_EQ(reason.code, Code::kArchListInvalid);
    EXPECT_NE(reason.found.find(found), std::string::npos) << text << ": " << reason.found;
    EXPECT_NE(reason.found.find("PYTORCH_ROCM_ARCH"), std::string::npos) << reason.found;
    EXPECT_NE(reason.advice.find(advice), std::string::npos) << text << ": " << reason.advice;
    EXPECT_FALSE(reason.wanted.empty());
  }
}

}  // namespace
}  // namespace opdock
