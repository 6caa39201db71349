// SPDX-License-Identifier: Apache-2.0
#include "arch/cuda_list.h"

#include <gtest/gtest.h>

namespace opdock {
namespace {

TEST(CudaList, Grammar) {
  const std::pair<const char*, const char*> rows[] = {
      {"8.0", "8.0"},
      {"7.5;8.0;9.0a;12.0+PTX", "7.5;8.0;9.0a;12.0+PTX"},
      {"7.5 8.0, 8.6", "7.5;8.0;8.6"},
      {"\t8.0\n9.0\r", "8.0;9.0"},
      {" ;10.0f;;10.3a; ", "10.0f;10.3a"},
      {"8.0;8.0+PTX", "8.0+PTX"},
      {"8.0+PTX;8.0", "8.0+PTX"},
      {"9.0a;9.0", "9.0;9.0a"},
      {"10.0f;10.0a;10.0", "10.0;10.0a;10.0f"},
      {"9.0a+PTX", "9.0a+PTX"},
      {"12.1;12.0;8.0", "8.0;12.0;12.1"},
      {"3.5", "3.5"},
      {"99.9", "99.9"},
      {"sm_80;sm_90a", "8.0;9.0a"},
      {"sm_103f+PTX", "10.3f+PTX"},
      {"8.0;sm_80+PTX", "8.0+PTX"},
      {"Hopper", "9.0+PTX"},
      {"Hopper+PTX", "9.0+PTX"},
      {"Ampere+PTX", "8.0;8.6+PTX"},
      {"Ampere+Tegra+PTX", "8.7+PTX"},
      {"Kepler+Tesla", "3.7"},
      {"Kepler;Kepler+Tesla", "3.5+PTX;3.7"},
      {"Pascal,8.0", "6.0;6.1+PTX;8.0"},
      {"Ada;8.9", "8.9+PTX"},
  };
  for (const auto& [text, wanted] : rows) {
    Reason reason{};
    const std::optional<CudaList> list = parse_cuda_list(text, "--archs", &reason);
    ASSERT_TRUE(list) << text << ": " << to_text(reason);
    EXPECT_EQ(to_text(list->targets), wanted) << text;
    EXPECT_FALSE(list->native || list->all || list->all_major) << text;
    // The printed list is read back as the same list.
    EXPECT_EQ(to_text(parse_cuda_list(wanted, "", &reason)->targets), wanted);
  }
}

TEST(CudaList, Words) {
  Reason reason{};
  const std::optional<CudaList> list = parse_cuda_list("all-major 9.0a,native;all", "x", &reason);
  ASSERT_TRUE(list);
  EXPECT_TRUE(list->native && list->all && list->all_major);
  EXPECT_EQ(to_text(list->targets), "9.0a");
}

// Columns: text, position that is named, part of the advice ("": the code's own advice).
TEST(CudaList, WhatIsRefusedIsNamedWithItsPlaceAndWhatWasProbablyMeant) {
  const std::tuple<const char*, const char*, const char*> rows[] = {
      {"8", "\"8\" at character 1 ", ""},
      {"80", "\"80\" at character 1 ", "write 8.0"},
      {"7.5;sm80", "\"sm80\" at character 5 ", "write 8.0"},
      {"compute_90a", "at character 1", "write 9.0a"},
      {"SM_103f+PTX", "\"SM_103f+PTX\"", "write 10.3f+PTX"},
      {"sm_80a", "\"sm_80a\"", "write 8.0"},
      {"121a", "\"121a\"", "write 12.1a"},
      {"8.0b", "\"8.0b\"", ""},
      {"8.0+ptx", "\"8.0+ptx\"", "write 8.0+PTX"},
      {"9.0A", "\"9.0A\"", "write 9.0a"},
      {"8.x", "\"8.x\"", ""},
      {"123.4", "\"123.4\"", ""},
      {"8.0;hopper", "\"hopper\" at character 5 ", "write Hopper"},
      {"VOLTA+TEGRA", "\"VOLTA+TEGRA\"", "write Volta+Tegra"},
      {"Native", "\"Native\"", "write native"},
      {"ALL", "\"ALL\"", "write all"},
      {"all_major", "\"all_major\"", "write all-major"},
      {"native+PTX", "\"native+PTX\"", "write native"},
      {"-8.0", "\"-8.0\"", ""},
      {"8..0", "\"8..0\"", ""},
      {"8.00", "\"8.00\"", ""},
      {"8.0 +PTX", "\"+PTX\" at character 5 ", ""},
      {"8.0a", "\"8.0a\"", "write 8.0"},
      {"9.0f", "\"9.0f\"", "write 9.0"},
      {"8.9f+PTX", "\"8.9f+PTX\"", "write 8.9"},
      {"Hopper+Tegra", "\"Hopper+Tegra\"", ""},
      {"8.0+PTX+PTX", "\"8.0+PTX+PTX\"", ""},
      {"9.0af", "\"9.0af\"", ""},
      {"\x1b[31m", "\"\\x1b[31m\"", ""},
      {"8.0:9.0", "\"8.0:9.0\"", ""},
      {"0.0", "\"0.0\"", ""},
  };
  for (const auto& [text, found, advice] : rows) {
    Reason reason{};
    ASSERT_FALSE(parse_cuda_list(text, "--archs", &reason)) << text;
    EXPECT_EQ(reason.code, Code::kArchListInvalid);
    EXPECT_NE(reason.found.find(found), std::string::npos) << text << ": " << reason.found;
    EXPECT_NE(reason.found.find(" of --archs = "), std::string::npos) << reason.found;
    EXPECT_FALSE(reason.wanted.empty());
    if (advice[0] == '\0') {
      EXPECT_EQ(reason.advice, info(Code::kArchListInvalid).advice) << text;
    } else {
      EXPECT_EQ(reason.advice, advice) << text;
    }
  }
}

TEST(CudaList, NothingIsAnError) {
  for (const char* text : {"", ";", " , ; \n"}) {
    Reason reason{};
    ASSERT_FALSE(parse_cuda_list(text, "TORCH_CUDA_ARCH_LIST", &reason));
    EXPECT_NE(reason.found.find("no architecture in TORCH_CUDA_ARCH_LIST"), std::string::npos);
  }
}

TEST(CudaList, NamesOfATarget) {
  const CudaTarget target{103, 'a', true};
  EXPECT_EQ(target.text(), "10.3a+PTX");
  EXPECT_EQ(target.sm(), "sm_103a");
  EXPECT_EQ(target.compute(), "compute_103a");
}

}  // namespace
}  // namespace opdock
