// Cuts a real shared object at every byte of its first 64 KiB, then every 4 KiB, and at every byte
// after the loaded part: each cut gives a reason, never a crash. (A plain dlopen of a file that
// lacks part of a segment dies of SIGBUS more often than not.)
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
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

// Returns the offset in the file after the last byte that a loader maps.
uint64_t end_of_segments(const std::vector<uint8_t>& file) {
  Elf64_Ehdr header;
  std::memcpy(&header, file.data(), sizeof header);
  uint64_t end = 0;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, file.data() + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type == PT_LOAD) end = std::max(end, segment.p_offset + segment.p_filesz);
  }
  return end;
}

void expect_reason(int fd, uint64_t size, uint64_t loaded, Depth depth) {
  const FileFacts facts = opdock::read_file_facts(fd, size, "sample.so", depth);
  if (size >= loaded) {
    ASSERT_EQ(facts.reasons.size(), 1u) << "cut at " << size;
    EXPECT_EQ(facts.reasons[0].code, Code::kSectionsCut) << "cut at " << size;
    EXPECT_TRUE(facts.note && facts.exports_entry) << "cut at " << size;
    return;
  }
  const Code wanted = size == 0 ? Code::kFileEmpty : size < 4 ? Code::kNotElf : Code::kElfTruncated;
  EXPECT_TRUE(std::any_of(facts.reasons.begin(), facts.reasons.end(),
                          [&](const opdock::Reason& reason) { return reason.code == wanted; }))
      << "cut at " << size << ": wanted " << opdock::info(wanted).name;
}

TEST(Truncation, EveryCutHasItsReason) {
  const std::vector<uint8_t> whole = sample();
  const uint64_t loaded = end_of_segments(whole);
  ASSERT_GT(loaded, uint64_t{1} << 16);
  ASSERT_GT(whole.size(), loaded + 1000);
  const int fd = opdock_test::open_bytes(whole);
  const FileFacts good = opdock::read_file_facts(fd, whole.size(), "sample.so", Depth::kInspect);
  EXPECT_TRUE(good.reasons.empty()) << to_text(good.reasons.front());
  ASSERT_TRUE(good.note);
  EXPECT_EQ(good.note->name, "sample");
  EXPECT_TRUE(good.exports_entry);

  std::vector<uint64_t> cuts;
  for (uint64_t at = 0; at < (1 << 16); ++at) cuts.push_back(at);
  for (uint64_t at = 1 << 16; at < loaded - 1; at += 4096) cuts.push_back(at);
  for (uint64_t at = loaded - 1; at < whole.size(); ++at) cuts.push_back(at);
  std::reverse(cuts.begin(), cuts.end());  // the cuts only shorten the file
  for (const uint64_t size : cuts) {
    ASSERT_EQ(ftruncate(fd, static_cast<off_t>(size)), 0);
    expect_reason(fd, size, loaded, Depth::kJudge);
    if (size % 257 == 0) expect_reason(fd, size, loaded, Depth::kInspect);
  }
  close(fd);
}

// Loads the file and calls its entry function in a child. Returns the wait status, 0 if both
// succeed.
int status_of_loading(int fd) {
  const pid_t child = fork();
  if (child == 0) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    using Entry = const void* (*)();
    const Entry entry =
        handle == nullptr ? nullptr : reinterpret_cast<Entry>(dlsym(handle, "opdock_plugin_v0"));
    _exit(entry != nullptr && entry() != nullptr ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(Truncation, WithoutSectionHeadersTheLoaderLoadsIt) {
  const std::vector<uint8_t> whole = sample();
  const uint64_t loaded = end_of_segments(whole);
  const int fd = opdock_test::open_bytes(whole);
  for (const uint64_t size : {whole.size(), whole.size() - 1, loaded + 1, loaded}) {
    ASSERT_EQ(ftruncate(fd, static_cast<off_t>(size)), 0);
    EXPECT_EQ(status_of_loading(fd), 0) << "cut at " << size << " of " << whole.size();
  }
  ASSERT_EQ(ftruncate(fd, static_cast<off_t>(loaded / 2)), 0);
  EXPECT_NE(status_of_loading(fd), 0) << "the test would not see a failure";
  close(fd);
}

}  // namespace
