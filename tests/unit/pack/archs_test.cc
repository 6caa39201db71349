// SPDX-License-Identifier: Apache-2.0
#include "pack/archs.h"

#include <gtest/gtest.h>

namespace opdock::pack {
namespace {

std::string spelled(const std::vector<CudaArch>& archs) {
  std::string out;
  for (const CudaArch& arch : archs) out += arch.sm() + (arch.ptx ? "+ " : " ");
  return out;
}

TEST(CudaArchs, Grammar) {
  const std::pair<const char*, const char*> rows[] = {
      {"8.0", "sm_80 "},
      {"7.5;8.0;9.0a;12.0+PTX", "sm_75 sm_80 sm_90a sm_120+ "},
      {"7.5 8.0, 8.6", "sm_75 sm_80 sm_86 "},
      {" ;10.0f;;10.3a; ", "sm_100f sm_103a "},
      {"8.0;8.0+PTX", "sm_80+ "},
      {"9.0;9.0a", "sm_90 sm_90a "},
      {"9.0a+PTX", "sm_90a+ "},
  };
  for (const auto& [text, wanted] : rows) {
    std::string problem;
    const auto archs = parse_cuda_archs(text, &problem);
    ASSERT_TRUE(archs) << text << ": " << problem;
    EXPECT_EQ(spelled(*archs), wanted) << text;
  }
}

TEST(CudaArchs, WhatIsRefusedIsNamed) {
  const std::pair<const char*, const char*> rows[] = {
      {"", "none"},           {";", "none"},        {"8", "\"8\""},           {"80", "\"80\""},
      {"sm_80", "\"sm_80\""}, {"8.0b", "\"8.0b\""}, {"8.0+ptx", "8.0+ptx"},   {"8.x", "\"8.x\""},
      {"123.4", "\"123.4\""}, {"4.9", "\"4.9\""},   {"8.0;Ampere", "Ampere"}, {"-8.0", "\"-8.0\""},
      {"8..0", "\"8..0\""},   {"8.00", "\"8.00\""}, {"+PTX", "\"+PTX\""},
  };
  for (const auto& [text, found] : rows) {
    std::string problem;
    EXPECT_FALSE(parse_cuda_archs(text, &problem)) << text;
    EXPECT_NE(problem.find(found), std::string::npos) << text << ": " << problem;
    EXPECT_NE(problem.find("wanted"), std::string::npos) << problem;
  }
}

}  // namespace
}  // namespace opdock::pack
