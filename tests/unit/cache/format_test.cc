// Tests the bytes of an entry file, and keys.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "base/sha256.h"
#include "cache/entry_format.h"
#include "cache/layout.h"
#include "cache_folder.h"

namespace opdock::testing {
namespace {

using cache::decode_entry;
using cache::encode_entry;
using cache::EntryData;
using cache::EntryState;

std::span<const uint8_t> as_bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

EntryData sample() {
  EntryData data;
  data.kind = "plugin";
  data.key = request().key();
  data.subject = "axpy “für” sm_90a\n";
  data.fields = {{"source", "a\tb"}, {"", ""}, {"source", "twice"}};
  data.maker = {"g++ 12", "0123456789abcdef"};
  data.created = 1234567890123;
  data.files = {{"axpy.so", 5, std::string(64, 'a')}};
  return data;
}

// Replaces the digest at the end by the one of the bytes before it.
std::string signed_again(std::string bytes) {
  bytes.resize(bytes.size() - 32);
  const Digest digest = sha256(bytes);
  return bytes.append(reinterpret_cast<const char*>(digest.data()), digest.size());
}

EntryState state_of(const std::string& bytes, std::string* problem) {
  EntryData data;
  return decode_entry(as_bytes(bytes), &data, problem);
}

TEST(Format, ReadsWhatItWrites) {
  const std::string bytes = encode_entry(sample(), blobs());
  EntryData data;
  std::string problem;
  ASSERT_EQ(decode_entry(as_bytes(bytes), &data, &problem), EntryState::kGood) << problem;
  EXPECT_EQ(data.kind, sample().kind);
  EXPECT_EQ(data.key, sample().key);
  EXPECT_EQ(data.subject, sample().subject);
  EXPECT_EQ(data.fields, sample().fields);
  EXPECT_EQ(data.maker.text, sample().maker.text);
  EXPECT_EQ(data.maker.id, sample().maker.id);
  EXPECT_EQ(data.created, sample().created);
  ASSERT_EQ(data.files.size(), 1u);
  EXPECT_EQ(data.files[0].name, "axpy.so");
  EXPECT_EQ(data.files[0].size, 5u);
  ASSERT_EQ(data.blobs.size(), blobs().size());
  for (size_t i = 0; i < data.blobs.size(); ++i) {
    EXPECT_EQ(data.blobs[i].offset % cache::kEntryAlignment, 0u);
    EXPECT_EQ(bytes.substr(data.blobs[i].offset, data.blobs[i].size), blobs()[i].bytes);
  }
}

// Checks the numbers in docs/reference/cache.md, because an old Opdock must be able to read what a
// new one writes.
TEST(Format, HeadStaysAsItIs) {
  const std::string bytes = encode_entry(sample(), {});
  EXPECT_EQ(bytes.substr(0, 8), "\x89OPDOCK\n");
  EXPECT_EQ(bytes.substr(8, 4), std::string("\1\0\0\0", 4));
  const Digest check = sha256(bytes.substr(0, 12));
  EXPECT_EQ(bytes.substr(12, 4), std::string(check.begin(), check.begin() + 4));
  uint64_t size = 0;
  for (int i = 7; i >= 0; --i) size = size * 256 + static_cast<uint8_t>(bytes[16 + i]);
  EXPECT_EQ(bytes[24], '{');
  EXPECT_EQ(bytes[24 + size - 1], '}');
  EXPECT_EQ(signed_again(bytes), bytes);
}

TEST(Format, TextsThatJsonCannotHoldAreKeptAsDigests) {
  EntryData data = sample();
  data.fields = {{"bad \xff utf-8", std::string("n\0l", 3)}};
  const std::string bytes = encode_entry(data, {});
  std::string problem;
  ASSERT_EQ(decode_entry(as_bytes(bytes), &data, &problem), EntryState::kGood) << problem;
  EXPECT_EQ(data.fields[0].name, "sha256:" + to_hex(sha256("bad \xff utf-8")));
  EXPECT_EQ(data.fields[0].value, "sha256:" + to_hex(sha256(std::string("n\0l", 3))));
}

// The digest is right, but the content is invalid.
TEST(Format, ImpossibleMetadataIsRefused) {
  const std::string good = encode_entry(sample(), blobs());
  std::string problem;
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    const size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    EXPECT_EQ(from.size(), to.size());
    return signed_again(bytes.replace(at, from.size(), to));
  };
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"kind\"", "\"king\""},
           {"\"plugin\"", "123456.8"},
           {"\"size\":300", "\"size\":999"},
           {"\"size\":300", "\"size\":-30"},
           {"\"size\":300", "\"size\":9e9"},
           {"axpy.so", "../../x"},
           {"axpy.so", "/axpyso"},
           {"\"name\":\"image\"", "\"name\":[[[1]]]"},
           {"\"blobs\":[", "\"blobs\":{"},
           {std::string(64, 'a'), std::string(63, 'a') + "G"},
           {request().key(), std::string(64, 'X')}}) {
    EXPECT_EQ(state_of(replaced(from, to), &problem), EntryState::kDamaged) << from << to;
    EXPECT_FALSE(problem.empty()) << from << to;
  }
  std::string bytes = good;
  bytes.replace(16, 8, std::string(8, '\xff'));
  EXPECT_EQ(state_of(signed_again(bytes), &problem), EntryState::kDamaged);
}

TEST(Format, InnerNames) {
  for (const char* good : {"a", "a/b", "a.so", "..a", "a/.b/c", ".a"}) {
    EXPECT_TRUE(cache::is_inner_name(good)) << good;
  }
  for (const std::string& bad :
       {std::string(), std::string("/"), std::string("/a"), std::string("a/"), std::string("a//b"),
        std::string("."), std::string(".."), std::string("a/../b"), std::string("../a"),
        std::string("a/.."), std::string("./a"), std::string("a\0b", 3), std::string(256, 'a')}) {
    EXPECT_FALSE(cache::is_inner_name(bad)) << bad;
  }
}

// ---- keys

TEST(Key, KeepsFieldsApart) {
  const std::vector<std::vector<CacheField>> lists = {{},
                                                      {{"", ""}},
                                                      {{"a", ""}},
                                                      {{"", "a"}},
                                                      {{"a", "b"}},
                                                      {{"ab", ""}},
                                                      {{"a", "b"}, {"", ""}},
                                                      {{"constant", "1"}, {"constant", "11"}},
                                                      {{"constant", "11"}, {"constant", "1"}},
                                                      {{"constant", "111"}},
                                                      {{"x", "0.1"}},
                                                      {{"x", "0.10000000000000001"}}};
  std::set<std::string> keys;
  for (const char* kind : {"kernels", "plugin"}) {
    for (const auto& fields : lists) {
      const std::string key = CacheRequest{kind, "s", fields}.key();
      EXPECT_TRUE(cache::is_key(key));
      EXPECT_TRUE(keys.insert(key).second);
    }
  }
}

TEST(Key, TheSubjectIsNoPartOfIt) {
  CacheRequest other = request();
  other.subject = "another name";
  EXPECT_EQ(other.key(), request().key());
}

// Keys are stored on disks, so they must not change unnoticed.
TEST(Key, StaysAsItIs) {
  const CacheRequest asked = {"kernels", "", {{"arch", "sm_90a"}}};
  FieldHasher hasher;
  EXPECT_EQ(asked.key(), to_hex(hasher.add("kernels").add("arch").add("sm_90a").finish()));
}

TEST(Maker, IdsBecomeFileNames) {
  EXPECT_EQ(cache::maker_name({"", "0123456789abcdef"}), "0123456789abcdef");
  for (const char* id : {"", "../../x", "ABCDEF0123", "0123", "no hex at all"}) {
    EXPECT_TRUE(cache::is_hex(cache::maker_name({"", id}), 64, 64)) << id;
  }
}

}  // namespace
}  // namespace opdock::testing
