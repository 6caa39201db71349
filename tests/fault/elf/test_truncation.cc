// A real shared object cut at every byte of its first 64 KiB and every 4 KiB behind: each time a
// reason, never a crash. (A bare dlopen of such files dies of SIGBUS more often than not.)
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "note/file_facts.h"
#include "support/elf_builder.h"

namespace {

using opdock::Code;
using opdock::Depth;
using opdock::FileFacts;

std::vector<uint8_t> sample() {
  std::ifstream in(std::getenv("OPDOCK_TEST_SAMPLE"), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void expect_reason(int fd, uint64_t size, Depth depth) {
  const FileFacts facts = opdock::read_file_facts(fd, size, "sample.so", depth);
  const Code wanted = size == 0 ? Code::kFileEmpty : size < 4 ? Code::kNotElf : Code::kElfTruncated;
  EXPECT_TRUE(std::any_of(facts.reasons.begin(), facts.reasons.end(),
                          [&](const opdock::Reason& reason) { return reason.code == wanted; }))
      << "cut at " << size << ": wanted " << opdock::info(wanted).name;
}

TEST(Truncation, EveryCutHasItsReason) {
  const std::vector<uint8_t> whole = sample();
  ASSERT_GT(whole.size(), size_t{1} << 16);
  const int fd = opdock_test::open_bytes(whole);
  const FileFacts good = opdock::read_file_facts(fd, whole.size(), "sample.so", Depth::kInspect);
  EXPECT_TRUE(good.reasons.empty()) << to_text(good.reasons.front());
  ASSERT_TRUE(good.note);
  EXPECT_EQ(good.note->name, "sample");
  EXPECT_TRUE(good.exports_entry);

  std::vector<uint64_t> cuts;
  for (uint64_t at = 0; at < (1 << 16); ++at) cuts.push_back(at);
  for (uint64_t at = 1 << 16; at < whole.size(); at += 4096) cuts.push_back(at);
  cuts.push_back(whole.size() - 1);
  std::reverse(cuts.begin(), cuts.end());  // a file can only be cut shorter
  for (const uint64_t size : cuts) {
    ASSERT_EQ(ftruncate(fd, static_cast<off_t>(size)), 0);
    expect_reason(fd, size, Depth::kJudge);
    if (size % 257 == 0) expect_reason(fd, size, Depth::kInspect);
  }
  close(fd);
}

}  // namespace
