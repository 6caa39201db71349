// Tests reading kernels' parameters from code objects.
// SPDX-License-Identifier: Apache-2.0
#include "driver/kernel_metadata.h"

#include <gtest/gtest.h>

#include "code_object.h"

namespace opdock {
namespace {

using namespace testing_support;
using nlohmann::json;

std::map<std::string, KernelMetadata> read(const std::string& image) {
  return read_kernel_metadata({reinterpret_cast<const uint8_t*>(image.data()), image.size()});
}

const json kMetadata = {
    {"amdhsa.version", {1, 1}},
    {"amdhsa.kernels",
     {{{".name", "scale"},
       {".group_segment_fixed_size", 4096},
       {".args",
        {kernel_arg(0, 8, "global_buffer"), kernel_arg(8, 4, "by_value"),
         kernel_arg(16, 72, "by_value"), kernel_arg(88, 8, "hidden_global_offset_x"),
         kernel_arg(96, 8, "hidden_none")}}},
      {{".name", "nothing"}}}}};

TEST(KernelMetadata, TellsWhatALaunchGives) {
  const auto found = read(code_object(packed(kMetadata)));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found.at("scale").params, (std::vector<uint32_t>{8, 4, 72}));
  EXPECT_EQ(found.at("scale").static_shared, 4096u);
  EXPECT_TRUE(found.at("nothing").params.empty());
  EXPECT_EQ(found.at("nothing").static_shared, 0u);
}

TEST(KernelMetadata, LeavesOutWhatIsNotAsExpected) {
  json metadata = kMetadata;
  metadata["amdhsa.kernels"][0][".args"][1].erase(".size");
  EXPECT_EQ(read(code_object(packed(metadata))).count("scale"), 0u);
  metadata["amdhsa.kernels"] = "none";
  EXPECT_TRUE(read(code_object(packed(metadata))).empty());
  EXPECT_TRUE(read(code_object("no msgpack")).empty());
  EXPECT_TRUE(read(code_object("")).empty());
  EXPECT_TRUE(read("").empty());
  EXPECT_TRUE(read("__CLANG_OFFLOAD_BUNDLE__and more").empty());
}

TEST(KernelMetadata, SurvivesEveryTruncationAndEveryFlippedByte) {
  const std::string image = code_object(packed(kMetadata));
  for (size_t size = 0; size < image.size(); ++size) read(image.substr(0, size));
  for (size_t i = 0; i < image.size(); ++i) {
    for (const int bits : {0xff, 0x80, 0x01}) {
      std::string damaged = image;
      damaged[i] = static_cast<char>(damaged[i] ^ bits);
      read(damaged);
    }
  }
}

}  // namespace
}  // namespace opdock
