// Tests what images and other tools' containers tell about their architecture.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "note/device_bundles.h"
#include "note/file_facts.h"
#include "note/image_identity.h"
#include "support/bundle_builder.h"
#include "unit/note/image_support.h"

namespace opdock {
namespace {

struct Row {
  const char* name;
  ImageKind kind;
  Bytes bytes;
  const char* arch;     // NULL: refused
  const char* toolkit;  // "": not shown
  bool suffix_shown;
};

TEST(ImageIdentity, Table) {
  const ImageKind kCubin = ImageKind::kCubin, kPtx = ImageKind::kPtx,
                  kObject = ImageKind::kCodeObject;
  Bytes future = old_cubin(90);
  future.u8(7, 0x55);
  const Bytes header("// a comment that talks of .target sm_10\n.version 7.8\n\t.target sm_80\n");
  const std::vector<Row> rows = {
      {"Pascal by CUDA 12.9", kCubin, old_cubin(60), "sm_60", "12.9", true},
      {"Turing by CUDA 11.8", kCubin, old_cubin(75, false, 118), "sm_75", "11.8", true},
      {"Hopper", kCubin, old_cubin(90), "sm_90", "12.9", true},
      {"Hopper, a", kCubin, old_cubin(90, true), "sm_90a", "12.9", true},
      {"Turing by CUDA 13", kCubin, new_cubin(75, "", ""), "sm_75", "", true},
      {"Hopper by CUDA 13, stripped", kCubin, new_cubin(90, "", ""), "sm_90", "", false},
      {"Hopper by CUDA 13", kCubin, new_cubin(90, "-arch sm_90 -m 64", "13.0"), "sm_90", "13.0",
       true},
      {"Hopper by CUDA 13, a", kCubin, new_cubin(90, "-arch sm_90a -m 64", "13.0"), "sm_90a",
       "13.0", true},
      {"Blackwell by 12.9, a", kCubin, new_cubin(100, "-arch sm_100a", "12.9", 8), "sm_100a",
       "12.9", true},
      {"Blackwell, a by its bit alone", kCubin, new_cubin(100, "", "", 8), "sm_100a", "", true},
      {"Blackwell, f", kCubin, new_cubin(103, "-arch sm_103f", "13.0"), "sm_103f", "13.0", true},
      {"Blackwell, options of another tool", kCubin, new_cubin(120, "-O3", "13.0"), "sm_120",
       "13.0", false},
      {"options for another architecture", kCubin, new_cubin(120, "-arch sm_1200", "13.0"),
       "sm_120", "13.0", false},
      {"an ABI yet to come", kCubin, future, "", "", false},
      {"PTX", kPtx, ptx("sm_75"), "compute_75", "", true},
      {"PTX, a", kPtx, ptx("sm_90a"), "compute_90a", "", true},
      {"PTX, f", kPtx, ptx("sm_120f"), "compute_120f", "", true},
      {"PTX with options", kPtx, ptx("sm_80, debug"), "compute_80", "", true},
      {"PTX with a word in a comment, indented", kPtx, header, nullptr, "", true},
      {"PTX whose target is cut", kPtx, Bytes(".version 8.0\n.target sm_8"), nullptr, "", true},
      {"PTX of no bytes", kPtx, Bytes(), nullptr, "", true},
      {"gfx906, code object 3", kObject, code_object(0x2f, 0, 1), "gfx906", "", false},
      {"gfx906 with xnack, code object 3", kObject, code_object(0x2f, 0x100, 1), "gfx906:xnack+",
       "", false},
      {"gfx908 any, code object 4", kObject, code_object(0x30, 0x500), "gfx908", "", false},
      {"gfx90a off and on", kObject, code_object(0x3f, 0xe00), "gfx90a:sramecc+:xnack-", "", false},
      {"gfx90a on and off", kObject, code_object(0x3f, 0xb00), "gfx90a:sramecc-:xnack+", "", false},
      {"gfx1030", kObject, code_object(0x36, 0, 4), "gfx1030", "", false},
      {"gfx942", kObject, code_object(0x4c, 0x500, 3), "gfx942", "", false},
      {"a GPU yet to come", kObject, code_object(0xfe), "", "", false},
      {"a cubin as code object", kObject, old_cubin(90), nullptr, "", false},
      {"source", ImageKind::kSource, Bytes("anything"), "", "", false},
  };
  for (const Row& row : rows) {
    std::string problem;
    std::optional<ImageIdentity> identity;
    read_bytes(row.bytes, [&](FileReader* reader, size_t size) {
      identity = identify_image(reader, row.kind, 0, size, &problem);
    });
    ASSERT_EQ(identity.has_value(), row.arch != nullptr) << row.name << ": " << problem;
    if (!identity) {
      EXPECT_FALSE(problem.empty()) << row.name;
      continue;
    }
    EXPECT_EQ(identity->arch, row.arch) << row.name;
    EXPECT_EQ(identity->toolkit.text(), row.toolkit) << row.name;
    if (row.kind == kCubin) {
      EXPECT_EQ(identity->suffix_shown, row.suffix_shown) << row.name;
    }
  }
}

TEST(ImageIdentity, SurvivesDamage) {
  const Bytes good = new_cubin(90, "-arch sm_90a -m 64", "13.0");
  read_damaged(good, good.size(), [](FileReader* reader, size_t size) {
    std::string problem;
    const std::optional<ImageIdentity> found =
        identify_image(reader, ImageKind::kCubin, 0, size, &problem);
    EXPECT_EQ(found.has_value(), problem.empty());
    if (!found) return problem;
    return found->arch + " " + found->toolkit.text() + (found->suffix_shown ? " shown" : "");
  });
}

// ---- containers

constexpr uint64_t kSuffixA = 1 << 20, kSuffixF = 1 << 21, kLz4 = 0x2000, kZstd = 0x8000;

Bytes fatbin_entry(unsigned kind, unsigned arch, uint64_t flags, const Bytes& payload) {
  Bytes b;
  const size_t padded = (payload.size() + 7) / 8 * 8;
  b.u16(0, kind).u16(2, 0x101).u32(4, 64).u64(8, padded);
  b.u32(16, (flags & (kLz4 | kZstd)) != 0 ? payload.size() : 0);
  b.u32(28, arch).u64(40, flags | 0x11).u8(63 + padded, 0);
  b.text(64, std::string(payload.data.begin(), payload.data.end()));
  return b;
}

// Builds an entry with an uncompressed cubin without suffix.
Bytes plain_cubin(unsigned arch) {
  return fatbin_entry(2, arch, 0, old_cubin(arch));
}

Bytes fatbin(const std::vector<Bytes>& entries) {
  Bytes b;
  for (const Bytes& entry : entries) b.add(entry);
  Bytes whole;
  whole.u32(0, 0xba55ed50).u16(4, 1).u16(6, 16).u64(8, b.size());
  whole.add(b);
  return whole;
}

// Entries may be longer than this reader's struct; the images lie after them.
TEST(ImageTable, HasItsImagesBehindEntriesOfItsOwnSize) {
  const std::vector<Image> one = {{2, 2, "compute_75", 12, 9, ptx("sm_75"), ""}};
  Plugin plugin = plugin_with(one);  // the image begins at byte 192
  plugin.image_table.u32(12, 192 - 16);
  EXPECT_TRUE(read_images(plugin, Depth::kJudge).reasons.empty());
  plugin.image_table.u32(12, 192 - 16 + 8);
  const FileFacts facts = read_images(plugin, Depth::kJudge);
  ASSERT_EQ(facts.reasons.size(), 1u);
  EXPECT_EQ(facts.reasons[0].code, Code::kImageTable);
  EXPECT_NE(facts.reasons[0].wanted.find("behind the entries"), std::string::npos)
      << facts.reasons[0].wanted;
}

TEST(Fatbin, EveryKindOfEntry) {
  const Bytes squeezed("\x28\xb5\x2f\xfd data");
  const FileFacts facts = inspect(
      fatbin({plain_cubin(80), fatbin_entry(2, 90, kSuffixA, squeezed),
              fatbin_entry(2, 90, kSuffixA | kZstd, squeezed),
              fatbin_entry(2, 120, kSuffixF | kLz4, squeezed), fatbin_entry(1, 75, 0, ptx("sm_75")),
              fatbin_entry(1, 100, kSuffixF | kZstd, squeezed),
              fatbin_entry(8, 90, 0, squeezed)}));  // link-time code, not an image to run
  EXPECT_EQ(shown(facts), "sm_80 sm_90a sm_90a* sm_120f* compute_75 compute_100f*");
  EXPECT_TRUE(facts.reasons.empty());
  EXPECT_FALSE(facts.images[0].from_table);
}

TEST(Fatbin, TheImageOutranksTheContainer) {
  EXPECT_EQ(shown(inspect(fatbin({fatbin_entry(2, 90, 0, old_cubin(80))}))), "sm_80(sm_90)");
  EXPECT_EQ(shown(inspect(fatbin({fatbin_entry(2, 90, kSuffixA, new_cubin(90, "", ""))}))),
            "sm_90a");
}

TEST(Fatbin, SeveralBehindEachOther) {
  Bytes all = fatbin({plain_cubin(80)});
  all.add(fatbin({plain_cubin(86)}), 16);
  all.add(Bytes(std::string(3 << 20, '\0')));
  all.add(fatbin({plain_cubin(89)}), 8);
  EXPECT_EQ(shown(inspect(all)), "sm_80 sm_86 sm_89");
}

// A verdict needs the images of every GPU that the note lists, wherever they are, and no others.
TEST(Fatbin, IsLookedForInJudgingWhereTheTableHasNoImage) {
  const Bytes other = fatbin({plain_cubin(80)});
  Plugin without = plugin_with({});
  without.image_table = Bytes();
  without.extra = other;
  EXPECT_EQ(shown(read_images(without, Depth::kJudge)), "sm_80");
  Plugin for_cpu;
  for_cpu.extra = other;
  EXPECT_EQ(shown(read_images(for_cpu, Depth::kJudge)), "");
  Plugin complete = plugin_with(usual_images());
  complete.replace(",\"rocm\"]", "]");
  complete.extra = other;
  EXPECT_EQ(shown(read_images(complete, Depth::kJudge)), "sm_90a sm_100f compute_75");
}

TEST(Fatbin, PtxTellsTheReleaseThatItsIsaCameWith) {
  const std::tuple<uint16_t, uint16_t, const char*> rows[] = {
      {6, 5, "10.2"}, {7, 0, "11.0"}, {7, 8, "11.8"}, {8, 0, "12.0"},
      {8, 5, "12.5"}, {8, 6, "12.7"}, {8, 8, "12.9"}, {9, 0, "13.0"},
      {9, 4, "13.4"}, {99, 0, ""},    {1, 8, ""}};
  for (const auto& [major, minor, release] : rows) {
    Bytes entry = fatbin_entry(1, 75, kZstd, Bytes("pressed"));
    entry.u16(24, minor).u16(26, major);
    const FileFacts facts = inspect(fatbin({entry}));
    ASSERT_EQ(facts.images.size(), 1u);
    EXPECT_EQ(facts.images[0].toolkit.text(), release) << major << "." << minor;
  }
}

// ---- compressed cubins

// Writes LZ4's format by hand, with literals only.
Bytes lz4_literals(const std::string& bytes) {
  Bytes b;
  size_t rest = bytes.size();
  b.u8(0, static_cast<uint8_t>(std::min<size_t>(rest, 15) << 4));
  if (rest >= 15) {
    for (rest -= 15; rest >= 255; rest -= 255) b.u8(b.size(), 255);
    b.u8(b.size(), static_cast<uint8_t>(rest));
  }
  return b.text(b.size(), bytes);
}

// Writes literals, then `zeros` zeros (at least 19) as references to the previous byte, then
// literals.
Bytes lz4_with_zeros(const std::string& before, size_t zeros, const std::string& behind) {
  Bytes b = lz4_literals(before + '\0');
  b.u8(0, b.data[0] | 15).u16(b.size(), 1);
  size_t rest = zeros - 1 - 4 - 15;
  for (; rest >= 255; rest -= 255) b.u8(b.size(), 255);
  b.u8(b.size(), static_cast<uint8_t>(rest));
  b.add(lz4_literals(behind));
  return b;
}

std::string text_of(const Bytes& bytes) {
  return {bytes.data.begin(), bytes.data.end()};
}

// A newer cubin whose note follows `filler`, as it follows the symbols in large cubins.
std::string cubin_with_late_note(const std::string& filler) {
  const std::string near = text_of(new_cubin(90, "-arch sm_90 -m 64", "13.0"));
  return near.substr(0, 64) + filler + near.substr(64);
}

// Returns bytes that compress badly.
std::string noise(size_t count) {
  std::string bytes;
  uint32_t state = 1;
  for (; bytes.size() < count; state = state * 1664525 + 1013904223) {
    bytes.push_back(static_cast<char>(state >> 24));
  }
  return bytes;
}

TEST(Fatbin, ACompressedCubinShowsItsToolkit) {
  const Bytes newer = new_cubin(90, "-arch sm_90 -m 64", "13.0");
  constexpr size_t kFar = 3 << 20;
  const Bytes late(cubin_with_late_note(noise(kFar)));
  const std::string zeros = cubin_with_late_note(std::string(kFar, '\0'));
  const Bytes late_lz4 = lz4_with_zeros(zeros.substr(0, 64), kFar, zeros.substr(64 + kFar));
  struct {
    const char* name;
    uint64_t flags;
    Bytes payload;
    const char* toolkit;
  } const rows[] = {
      {"zstd", kZstd, compress(Compression::kZstd, newer), "13.0"},
      {"LZ4", kLz4, lz4_literals(text_of(newer)), "13.0"},
      {"zstd, behind 3 MiB", kZstd, compress(Compression::kZstd, late), "13.0"},
      {"LZ4, behind 3 MiB", kLz4, late_lz4, "13.0"},
      {"the older layout", kLz4, lz4_literals(text_of(old_cubin(90, false, 118))), "11.8"},
      {"without a note", kZstd, compress(Compression::kZstd, new_cubin(90, "", "")), ""},
      {"another method than its flag says", kLz4, compress(Compression::kZstd, newer), ""},
  };
  for (const auto& row : rows) {
    const FileFacts facts = inspect(fatbin({fatbin_entry(2, 90, row.flags, row.payload)}));
    EXPECT_EQ(shown(facts), "sm_90*") << row.name;
    ASSERT_EQ(facts.images.size(), 1u) << row.name;
    EXPECT_EQ(facts.images[0].toolkit.text(), row.toolkit) << row.name;
    EXPECT_TRUE(facts.reasons.empty()) << row.name;
  }
}

TEST(Fatbin, ACompressedCubinOutranksTheContainer) {
  const Bytes older = compress(Compression::kZstd, old_cubin(80));
  EXPECT_EQ(shown(inspect(fatbin({fatbin_entry(2, 90, kZstd, older)}))), "sm_80(sm_90)*");
  const Bytes specific = compress(Compression::kZstd, new_cubin(90, "-arch sm_90a", "13.0"));
  EXPECT_EQ(shown(inspect(fatbin({fatbin_entry(2, 90, kZstd | kSuffixA, specific)}))), "sm_90a*");
}

// Few bytes that expand to very many, in one cubin and in many.
TEST(Fatbin, CompressedCubinsHaveABudget) {
  const std::string head = text_of(new_cubin(90, "", "")).substr(0, 64);
  const std::string note = text_of(new_cubin(90, "-arch sm_90 -m 64", "13.0")).substr(64);
  const auto toolkit_of = [](const Bytes& payload, uint64_t* budget) {
    Bytes bytes = fatbin({fatbin_entry(2, 90, kLz4, payload)});
    std::vector<DeviceImage> images;
    read_bytes(bytes, [&](FileReader* reader, size_t size) {
      uint64_t end = 0;
      EXPECT_TRUE(read_fatbin(reader, 0, size, budget, &images, &end));
    });
    return images.at(0).toolkit.text();
  };
  const Bytes payload = lz4_with_zeros(head, 1 << 20, note);
  uint64_t budget = kCubinBudget;
  EXPECT_EQ(toolkit_of(payload, &budget), "13.0");
  EXPECT_GE(kCubinBudget - budget, uint64_t{1} << 20);
  EXPECT_LE(kCubinBudget - budget, uint64_t{1} << 21);
  budget = 1 << 19;
  EXPECT_EQ(toolkit_of(payload, &budget), "");
  EXPECT_EQ(budget, 0u);
  // 4 GiB of zeros in zstd blocks that repeat a byte: more than 256 times the compressed size.
  Bytes frame;
  frame.u32(0, 0xfd2fb528).u8(4, 0).u8(5, 7 << 3).put(6, head.size() << 3, 3).text(9, head);
  for (int i = 0; i < 32768; ++i)
    frame.put(frame.size(), (128 << 10) << 3 | 2, 3).u8(frame.size(), 0);
  std::vector<DeviceImage> images;
  budget = kCubinBudget;
  read_bytes(fatbin({fatbin_entry(2, 90, kZstd, frame)}), [&](FileReader* reader, size_t size) {
    uint64_t end = 0;
    EXPECT_TRUE(read_fatbin(reader, 0, size, &budget, &images, &end));
  });
  EXPECT_LE(kCubinBudget - budget, 256 * frame.size() + (64 << 10));
}

// PTX of a release that is not yet in the list of ISA versions gets its neighbour's toolkit.
TEST(Fatbin, PtxOfANewIsaIsOfItsNeighboursToolkit) {
  Bytes ptx_entry = fatbin_entry(1, 90, kZstd, Bytes("pressed"));
  ptx_entry.u16(24, 0).u16(26, 99);
  const Bytes cubin = compress(Compression::kZstd, new_cubin(90, "-arch sm_90", "14.2"));
  const FileFacts facts = inspect(fatbin({ptx_entry, fatbin_entry(2, 90, kZstd, cubin)}));
  EXPECT_EQ(shown(facts), "compute_90* sm_90*");
  EXPECT_EQ(facts.images.at(0).toolkit.text(), "14.2");
}

TEST(Fatbin, CompressedCubinsSurviveDamage) {
  const std::string text = text_of(new_cubin(90, "-arch sm_90a -m 64", "13.0"));
  const Bytes lz4 = lz4_with_zeros(text.substr(0, 64), 100, text.substr(64));
  for (const Bytes& entry :
       {fatbin_entry(2, 90, kLz4, lz4),
        fatbin_entry(2, 90, kZstd, compress(Compression::kZstd, Bytes(text)))}) {
    const Bytes good = fatbin({entry});
    read_damaged(good, good.size(), [](FileReader* reader, size_t size) {
      std::vector<DeviceImage> images;
      uint64_t end = 0, budget = kCubinBudget;
      const bool whole = read_fatbin(reader, 0, size, &budget, &images, &end);
      return (whole ? "whole " : "damaged ") + within(images, end, size);
    });
  }
}

TEST(Fatbin, SurvivesDamage) {
  const Bytes good = fatbin({plain_cubin(80), fatbin_entry(1, 75, 0, ptx("sm_75"))});
  read_damaged(good, good.size(), [](FileReader* reader, size_t size) {
    std::vector<DeviceImage> images;
    uint64_t end = 0, budget = kCubinBudget;
    const bool whole = read_fatbin(reader, 0, size, &budget, &images, &end);
    return (whole ? "whole " : "damaged ") + within(images, end, size);
  });
}

TEST(HipBundle, EveryKindOfEntry) {
  const FileFacts facts = inspect(
      hip_bundle({{"host-x86_64-unknown-linux--", Bytes()},
                  {"hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", code_object(0x3f, 0xe00)},
                  {"hip-amdgcn-amd-amdhsa-gfx906", code_object(0x2f, 0, 1)},
                  {"hipv4-amdgcn-amd-amdhsa--gfx1030", code_object(0x37)}}));
  EXPECT_EQ(shown(facts), "gfx90a:sramecc+:xnack- gfx906 gfx1031(gfx1030)");
  EXPECT_EQ(facts.images[0].backend, Backend::kRocm);
}

TEST(HipBundle, SurvivesDamage) {
  const Bytes good = hip_bundle({{"hipv4-amdgcn-amd-amdhsa--gfx90a", code_object(0x3f)}});
  read_damaged(good, 128, [](FileReader* reader, size_t size) {
    std::vector<DeviceImage> images;
    uint64_t end = 0, budget = kDecompressionBudget;
    const bool whole = read_hip_bundle(reader, 0, size, &budget, &images, &end);
    return (whole ? "whole " : "damaged ") + within(images, end, size);
  });
}

}  // namespace
}  // namespace opdock
