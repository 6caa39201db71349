// Runs each row of the fault tables: the damaged file gets its reason at both reading depths, and
// the reader then reads a good plugin without any reason.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "fault.h"
#include "note/file_facts.h"

namespace opdock_test {
namespace {

using opdock::Depth;
using opdock::FileFacts;

FileFacts read(Plugin& plugin, Depth depth) {
  const int fd = open_bytes(plugin.file().data);
  FileFacts facts = opdock::read_file_facts(fd, plugin.file().size(), "plugin.so", depth);
  close(fd);
  return facts;
}

std::string all_reasons(const FileFacts& facts) {
  std::string text;
  for (const opdock::Reason& reason : facts.reasons) text += to_text(reason) + "\n";
  return text;
}

class FaultTest : public testing::TestWithParam<Fault> {};

TEST_P(FaultTest, HasItsReason) {
  const Fault& fault = GetParam();
  for (const Depth depth : {Depth::kJudge, Depth::kInspect}) {
    Plugin plugin;
    fault.damage(plugin);
    const FileFacts facts = read(plugin, depth);
    const auto found = std::find_if(facts.reasons.begin(), facts.reasons.end(),
                                    [&](const opdock::Reason& r) { return r.code == fault.code; });
    ASSERT_NE(found, facts.reasons.end())
        << "wanted " << opdock::info(fault.code).name << ", got:\n"
        << all_reasons(facts);
    EXPECT_FALSE(found->found.empty());
    EXPECT_FALSE(found->wanted.empty());
    EXPECT_FALSE(found->advice.empty());
    EXPECT_EQ(opdock::info(found->code).severity, opdock::Severity::kReject);
    EXPECT_LE(facts.reasons.size(), 64u) << "one fault must not flood the report";

    Plugin good = plugin_with(usual_images());
    EXPECT_EQ(all_reasons(read(good, depth)), "");
  }
}

std::string case_name(const testing::TestParamInfo<Fault>& info) {
  std::string name;
  for (const char c : info.param.name) name += isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Elf, FaultTest, testing::ValuesIn(elf_faults()), case_name);
INSTANTIATE_TEST_SUITE_P(Note, FaultTest, testing::ValuesIn(note_faults()), case_name);
INSTANTIATE_TEST_SUITE_P(Json, FaultTest, testing::ValuesIn(json_faults()), case_name);
INSTANTIATE_TEST_SUITE_P(Images, FaultTest, testing::ValuesIn(image_faults()), case_name);

// Digests are checked only at the depth that reads whole images.
TEST(ImageDigest, IsCheckedWhenInspecting) {
  std::vector<Image> images = usual_images();
  Plugin plugin = plugin_with(images);
  Bytes& table = plugin.image_table;
  table.text(table.size() - 1, " ");  // changes the last byte of the PTX
  EXPECT_EQ(all_reasons(read(plugin, Depth::kJudge)), "");
  const FileFacts facts = read(plugin, Depth::kInspect);
  ASSERT_EQ(facts.reasons.size(), 1u);
  EXPECT_EQ(facts.reasons[0].code, Code::kClaimDigest);
}

// A file that shrinks between fstat and the read.
TEST(ShrunkFile, IsReported) {
  Plugin plugin = plugin_with(usual_images());
  for (size_t size = 0; size < plugin.file().size(); size += 13) {
    std::vector<uint8_t> bytes = plugin.file().data;
    bytes.resize(size);
    const int fd = open_bytes(bytes);
    const FileFacts facts =
        opdock::read_file_facts(fd, plugin.file().size(), "plugin.so", Depth::kInspect);
    close(fd);
    const bool changed =
        std::any_of(facts.reasons.begin(), facts.reasons.end(),
                    [](const opdock::Reason& r) { return r.code == Code::kFileChanged; });
    EXPECT_TRUE(changed) << size << "\n" << all_reasons(facts);
  }
}

// No single-byte change of the whole synthetic plugin crashes the reader.
TEST(ByteChanges, AreSurvived) {
  Plugin plugin = plugin_with(usual_images());
  const std::vector<uint8_t> good = plugin.file().data;
  for (const uint8_t value : {uint8_t{0}, uint8_t{0xff}, uint8_t{0x7f}}) {
    for (size_t at = 0; at < good.size(); ++at) {
      const uint8_t was = plugin.file().data[at];
      plugin.file().data[at] = value;
      read(plugin, Depth::kJudge);
      plugin.file().data[at] = was;
    }
  }
}

}  // namespace
}  // namespace opdock_test
