// Tests HIP's compressed bundles: the architectures that they name, and bundles that are damaged,
// unknown or too large.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "note/device_bundles.h"
#include "support/bundle_builder.h"
#include "unit/note/image_support.h"

namespace opdock {
namespace {

Bytes usual_bundle() {
  return hip_bundle({{"host-x86_64-unknown-linux-gnu-", Bytes()},
                     {"hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", code_object(0x3f, 0xe00)},
                     {"hipv4-amdgcn-amd-amdhsa--gfx1030", code_object(0x36)}});
}

constexpr const char* kUsual = "gfx90a:sramecc+:xnack-* gfx1030*";

// Returns the facts of a plugin with these bytes in the section that hipcc makes.
FileFacts in_section(const Bytes& extra) {
  Plugin plugin;
  plugin.extra = extra;
  plugin.extra_section = ".hip_fatbin";
  return read_images(plugin, Depth::kInspect);
}

// Write zstd's format by hand: a frame with a window of 2^log bytes, and blocks that hold bytes
// unchanged or repeat one byte.
Bytes zstd_frame(unsigned window_log) {
  Bytes frame;
  frame.u32(0, 0xfd2fb528).u8(4, 0).u8(5, (window_log - 10) << 3);
  return frame;
}
Bytes& add_raw(Bytes& frame, const std::string& bytes, bool last) {
  const size_t at = frame.size();
  frame.put(at, bytes.size() << 3 | (last ? 1 : 0), 3).text(at + 3, bytes);
  return frame;
}
Bytes& add_repeated(Bytes& frame, uint8_t byte, size_t count, bool last) {
  const size_t at = frame.size();
  frame.put(at, count << 3 | 2 | (last ? 1 : 0), 3).u8(at + 3, byte);
  return frame;
}
std::string text_of(const Bytes& bytes, size_t begin, size_t count) {
  return std::string(reinterpret_cast<const char*>(bytes.data.data()) + begin, count);
}

TEST(CompressedBundle, EveryVersionAndMethodNamesItsArchitectures) {
  for (const unsigned version : {1, 2, 3}) {
    for (const Compression compression : {Compression::kZlib, Compression::kZstd}) {
      const Bytes bundle = compressed_bundle(version, compression, usual_bundle());
      const FileFacts facts = in_section(bundle);
      EXPECT_EQ(shown(facts), kUsual) << version << ", method " << int(compression);
      EXPECT_TRUE(facts.reasons.empty());
      EXPECT_EQ(shown(inspect(bundle)), kUsual) << "found without section headers' help";
      for (const DeviceImage& image : facts.images) {
        EXPECT_EQ(image.backend, Backend::kRocm);
        EXPECT_EQ(image.kind, ImageKind::kCodeObject);
        EXPECT_EQ(image.size, bundle.size());
        EXPECT_EQ(image.offset, facts.images[0].offset);
      }
    }
  }
}

// Builds the formats from their specifications, without the writers of zstd and zlib.
TEST(CompressedBundle, ReadsWhatIsWrittenByHand) {
  const Bytes plain = usual_bundle();
  Bytes frame = zstd_frame(17);
  add_raw(frame, text_of(plain, 0, 100), false);
  add_raw(frame, text_of(plain, 100, 4096 - 100), false);
  add_repeated(frame, 0, plain.size() - 4096, true);
  EXPECT_EQ(shown(in_section(compressed_bundle(2, 1, plain.size(), frame))), kUsual);

  // "stored" blocks have a length and its complement; the checksum at the end is wrong
  Bytes deflated;
  deflated.u8(0, 0x78).u8(1, 0x01).u8(2, 0).u16(3, 4096).u16(5, 0xffff - 4096);
  deflated.text(7, text_of(plain, 0, 4096));
  EXPECT_EQ(shown(in_section(compressed_bundle(2, 0, plain.size(), deflated))), kUsual);
}

TEST(CompressedBundle, ManyInOneSectionAreAllRead) {
  const auto of = [](const char* arch) {
    return hip_bundle({{std::string("hipv4-amdgcn-amd-amdhsa--") + arch, code_object(0x3f)}});
  };
  Bytes all = compressed_bundle(1, Compression::kZlib, of("gfx906"));
  const size_t second = all.add(compressed_bundle(3, Compression::kZstd, of("gfx908")), 4096);
  all.add(compressed_bundle(2, Compression::kZstd, of("gfx1030")), 4096);
  const size_t plain = all.add(of("gfx90a"), 4096);
  all.add(compressed_bundle(1, Compression::kZstd, of("gfx1100")), 4096);
  all.add(compressed_bundle(1, Compression::kZstd, of("gfx1200")), 4096);
  for (const FileFacts& facts : {in_section(all), inspect(all)}) {
    EXPECT_EQ(shown(facts), "gfx906* gfx908* gfx1030* gfx90a gfx1100* gfx1200*");
    EXPECT_TRUE(facts.reasons.empty());
    const uint64_t begin = facts.images[0].offset;
    EXPECT_EQ(facts.images[0].size, second) << "version 1: up to the next one";
    EXPECT_EQ(facts.images[1].offset - begin, second);
    EXPECT_EQ(facts.images[3].offset - begin, plain + 4096);
  }
}

TEST(CompressedBundle, ADamagedOneIsADefectWhereItsSectionSaysWhatItIs) {
  const Bytes plain = usual_bundle();
  const Bytes good = compress(Compression::kZstd, plain);
  Bytes flipped = good, cut = good;
  flipped.data[1] ^= 0xff;  // zstd's magic
  cut.data.resize(12);
  Bytes other = plain;
  other.u8(0, '#');
  Bytes too_long = compressed_bundle(2, 1, plain.size(), good);
  too_long.u32(8, 1 << 20);
  const std::pair<const char*, Bytes> rows[] = {
      {"zstd's magic", compressed_bundle(3, 1, plain.size(), flipped)},
      {"cut off", compressed_bundle(3, 1, plain.size(), cut)},
      {"nothing in it", compressed_bundle(3, 1, plain.size(), Bytes())},
      {"zlib said, zstd found", compressed_bundle(2, 0, plain.size(), good)},
      {"no bundle in it", compressed_bundle(2, Compression::kZlib, other)},
      {"an entry beyond the plain size", compressed_bundle(2, 1, plain.size() - 1, good)},
      {"longer than its section", too_long}};
  for (const auto& [name, bytes] : rows) {
    const FileFacts facts = in_section(bytes);
    ASSERT_EQ(facts.reasons.size(), 1u) << name;
    EXPECT_EQ(facts.reasons[0].code, Code::kImageTable) << name;
    for (const DeviceImage& image : facts.images) EXPECT_EQ(image.arch, "") << name;
    const FileFacts elsewhere = inspect(bytes);  // just bytes that begin like a bundle
    EXPECT_TRUE(elsewhere.images.empty() && elsewhere.reasons.empty()) << name;
  }
}

TEST(CompressedBundle, OneThatCannotBeReadHereHasNoArchitecture) {
  const Bytes plain = usual_bundle();
  const Bytes good = compress(Compression::kZstd, plain);
  Bytes wide = zstd_frame(28);  // clang's own windows have at most 2^27 bytes
  add_raw(wide, text_of(plain, 0, plain.size()), true);
  Bytes newer = compressed_bundle(3, 1, plain.size(), good);
  newer.u16(4, 4);
  for (const auto& [name, bytes] :
       {std::pair("method 2", compressed_bundle(2, 2, 1, good)), std::pair("version 4", newer),
        std::pair("a window of 256 MiB", compressed_bundle(3, 1, plain.size(), wide))}) {
    const FileFacts facts = in_section(bytes);
    EXPECT_EQ(shown(facts), "?*") << name;
    EXPECT_TRUE(facts.reasons.empty()) << name;
    EXPECT_EQ(facts.images[0].size, bytes.size()) << name;
  }
}

// 4096 entries with names of 256 bytes exceed the 1 MiB that is decompressed.
TEST(CompressedBundle, TheTableIsReadUpToALimit) {
  const auto with_entries = [](size_t count) {
    const std::string name = "hipv4-amdgcn-amd-amdhsa--gfx90a" + std::string(225, ' ');
    Bytes plain("__CLANG_OFFLOAD_BUNDLE__");
    plain.u64(24, count);
    for (size_t i = 0; i < count; ++i) {
      const size_t at = plain.size();
      plain.u64(at, 0).u64(at + 8, 1).u64(at + 16, name.size()).text(at + 24, name);
    }
    return compressed_bundle(3, Compression::kZstd, plain);
  };
  EXPECT_EQ(in_section(with_entries(3000)).images.size(), 3000u);
  const FileFacts facts = in_section(with_entries(4096));
  EXPECT_EQ(shown(facts), "?*");
  EXPECT_TRUE(facts.reasons.empty());
}

// A few bytes that claim to expand to very many: the excess is not decompressed.
TEST(CompressedBundle, OneThatWouldBecomeHugeIsNotDecompressed) {
  const Bytes plain = usual_bundle();
  Bytes frame = zstd_frame(27);
  add_raw(frame, text_of(plain, 0, 4096), false);
  for (int i = 0; i < 100000; ++i) add_repeated(frame, 0, 128 << 10, false);  // 12 GiB
  EXPECT_EQ(shown(in_section(compressed_bundle(3, 1, uint64_t{1} << 40, frame))), kUsual);
}

// A bundle of a hundred bytes can have a table of a MiB, so most of very many bundles are not
// decompressed.
TEST(CompressedBundle, AFileHasABudget) {
  Bytes frame = zstd_frame(17);
  add_raw(frame, text_of(Bytes("__CLANG_OFFLOAD_BUNDLE__").u64(24, 4096), 0, 32), false);
  add_repeated(frame, 0, 4096 * 24, true);  // entries without name and content
  const Bytes one = compressed_bundle(3, 1, 32 + 4096 * 24, frame);
  Bytes all;
  for (int i = 0; i < 2000; ++i) all.add(one, 8);
  const FileFacts facts = in_section(all);
  EXPECT_TRUE(facts.reasons.empty());
  // decompressed within the budget; these name nothing
  const size_t read = (64 << 20) / (32 + 4096 * 24) + 1;
  EXPECT_EQ(facts.images.size(), 2000 - read);
}

TEST(CompressedBundle, SurvivesDamage) {
  for (const Compression compression : {Compression::kZlib, Compression::kZstd}) {
    const Bytes good = compressed_bundle(2, compression, usual_bundle());
    read_damaged(good, good.size(), [](FileReader* reader, size_t size) {
      std::vector<DeviceImage> images;
      uint64_t end = 0, budget = kDecompressionBudget;
      const bool whole = read_hip_bundle(reader, 0, size, &budget, &images, &end);
      return (whole ? "whole " : "damaged ") + within(images, end, size);
    });
  }
}

}  // namespace
}  // namespace opdock
