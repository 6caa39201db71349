// Tests what the reader finds in valid synthetic plugins.
// SPDX-License-Identifier: Apache-2.0
#include "note/file_facts.h"

#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "support/image_builder.h"

namespace opdock {
namespace {

using namespace opdock_test;

FileFacts read(Plugin plugin, Depth depth = Depth::kJudge) {
  const int fd = open_bytes(plugin.file().data);
  FileFacts facts = read_file_facts(fd, plugin.file().size(), "/somewhere/plugin.so", depth);
  close(fd);
  return facts;
}

std::string texts(const FileFacts& facts) {
  std::string text;
  for (const Reason& reason : facts.reasons) text += to_text(reason) + "\n";
  return text;
}

TEST(FileFacts, OfAGoodPlugin) {
  const FileFacts facts = read(Plugin());
  EXPECT_EQ(texts(facts), "");
  EXPECT_TRUE(facts.is_elf);
  EXPECT_TRUE(facts.is_shared_object);
  EXPECT_EQ(facts.machine, 62);
  EXPECT_EQ(facts.path, "/somewhere/plugin.so");
  EXPECT_EQ(facts.size, Plugin().file().size());
  EXPECT_TRUE(facts.exports_entry);
  EXPECT_FALSE(facts.executable_stack);
  EXPECT_FALSE(facts.static_tls);
  EXPECT_FALSE(facts.unique_symbols);
  EXPECT_TRUE(facts.needed.empty());
  EXPECT_TRUE(facts.images.empty());
  ASSERT_TRUE(facts.note);
  EXPECT_EQ(facts.note->name, "axpy");
  EXPECT_EQ(facts.note->ops.at(0).name, "axpy");
}

TEST(FileFacts, OfTheDynamicSection) {
  Plugin plugin;
  plugin.needed = {"libc.so.6", "libm.so.6"};
  plugin.soname = "libaxpy.so.1";
  plugin.rpath = "/a:/b";
  plugin.runpath = "$ORIGIN/lib";
  plugin.versions = {{"libc.so.6", {"GLIBC_2.2.5", "GLIBC_2.34"}}, {"libm.so.6", {"GLIBC_2.29"}}};
  plugin.flags = 0x10;  // DF_STATIC_TLS
  const FileFacts facts = read(plugin);
  EXPECT_EQ(texts(facts), "");
  EXPECT_EQ(facts.needed, plugin.needed);
  EXPECT_EQ(facts.soname, "libaxpy.so.1");
  EXPECT_EQ(facts.rpath, "/a:/b");
  EXPECT_EQ(facts.runpath, "$ORIGIN/lib");
  EXPECT_TRUE(facts.static_tls);
  ASSERT_EQ(facts.versions.size(), 3u);
  EXPECT_EQ(facts.versions[1].library, "libc.so.6");
  EXPECT_EQ(facts.versions[1].version, "GLIBC_2.34");
  EXPECT_FALSE(facts.versions[1].weak);
  EXPECT_EQ(facts.versions[2].library, "libm.so.6");
}

TEST(FileFacts, WeakVersionNeeds) {
  Plugin plugin;
  plugin.versions = {{"libc.so.6", {"GLIBC_2.99"}}};
  plugin.file();
  plugin.file().u16(plugin.verneed + 16 + 4, 2);  // VER_FLG_WEAK
  const FileFacts facts = read(plugin);
  ASSERT_EQ(facts.versions.size(), 1u) << texts(facts);
  EXPECT_TRUE(facts.versions[0].weak);
}

TEST(FileFacts, ExecutableStack) {
  Plugin plugin;
  plugin.stack_flags = 7;
  EXPECT_TRUE(read(plugin).executable_stack);
  Plugin silent;
  silent.stack_segment = false;  // on x86-64 the loader then assumes an executable stack
  EXPECT_TRUE(read(silent).executable_stack);
  silent.file().u16(18, 183);  // EM_AARCH64
  EXPECT_FALSE(read(silent).executable_stack);
}

TEST(FileFacts, Symbols) {
  Plugin plugin;
  plugin.symbols = {{"opdock_plugin_v0", true, 1},
                    {"a_unique", true, 10},
                    {"malloc", false, 1},
                    {"maybe", false, 2},
                    {"other_export", true, 2}};
  const FileFacts judged = read(plugin);
  EXPECT_TRUE(judged.unique_symbols);
  EXPECT_TRUE(judged.exports_entry);
  EXPECT_TRUE(judged.undefined.empty()) << "not wanted for a verdict";
  const FileFacts inspected = read(plugin, Depth::kInspect);
  EXPECT_EQ(inspected.undefined, (std::vector<std::string>{"malloc", "maybe"}));
  EXPECT_EQ(inspected.exports,
            (std::vector<std::string>{"opdock_plugin_v0", "a_unique", "other_export"}));
}

// For a library without exports, as GNU ld writes it, the hash table does not tell the number of
// symbols.
TEST(FileFacts, UndefinedSymbolsOfALibraryWithoutExports) {
  Plugin plugin;
  plugin.symbols = {{"malloc", false, 1}, {"free", false, 1}};
  plugin.file();
  plugin.file().u32(plugin.hash + 4, 1).u32(plugin.hash + 24, 0);
  EXPECT_EQ(read(plugin, Depth::kInspect).undefined, (std::vector<std::string>{"malloc", "free"}));
}

TEST(FileFacts, OldHashTable) {
  Plugin plugin;
  plugin.sysv_hash = true;
  EXPECT_TRUE(read(plugin).exports_entry);
}

TEST(FileFacts, OfAnotherMachine) {
  Plugin plugin;
  plugin.machine = 183;  // EM_AARCH64
  plugin.replace(R"("x86_64","level":1)", R"("aarch64","level":0)");
  plugin.needed = {"libnothing.so.1"};
  const FileFacts facts = read(plugin, Depth::kInspect);
  EXPECT_EQ(texts(facts), "");
  EXPECT_EQ(facts.machine, 183);
}

TEST(FileFacts, DoNotDependOnSectionHeaders) {
  Plugin plugin = plugin_with(usual_images());
  plugin.section_headers = false;
  FileFacts facts = read(plugin, Depth::kInspect);
  EXPECT_EQ(texts(facts), "");
  EXPECT_EQ(facts.images.size(), 3u);
  Plugin rubbish = plugin_with(usual_images());
  for (size_t i = 0; i < 3 * 64; ++i)
    rubbish.file().u8((rubbish.file(), rubbish.sections) + i, 255);
  facts = read(rubbish, Depth::kInspect);
  EXPECT_EQ(texts(facts), "");
  EXPECT_EQ(facts.images.size(), 3u);
}

TEST(FileFacts, NotesAlignedToEight) {
  Plugin plugin;
  plugin.note_alignment = 8;
  EXPECT_EQ(texts(read(plugin)), "");
}

// Returns the facts of a plugin whose note segment holds `notes` and, with `with_own`, Opdock's
// note.
FileFacts read_notes(const Bytes& notes, uint64_t alignment, bool with_own = true) {
  Plugin plugin;
  plugin.section_headers = false;
  plugin.notes = 0;
  plugin.extra = notes;
  if (with_own) {
    Plugin own;  // its note is aligned to 4
    own.file();
    const auto begin = own.file().data.begin() + static_cast<std::ptrdiff_t>(own.note);
    const size_t size = 20 + own.file().get(own.note + 4, 4);
    plugin.extra.text(plugin.extra.size(), std::string(begin, begin + std::ptrdiff_t(size)));
  }
  plugin.file();
  const size_t header = plugin.note_header;
  plugin.file().u64(header + 8, plugin.extra_at).u64(header + 16, plugin.extra_at);
  plugin.file().u64(header + 32, plugin.extra.size()).u64(header + 48, alignment);
  return read(plugin);
}

Bytes foreign_note(uint32_t name_size, uint32_t descriptor_size, size_t bytes) {
  Bytes note;
  note.u32(0, name_size).u32(4, descriptor_size).u32(8, 1).text(12, std::string("GNU\0", 4));
  return note.u8(bytes - 1, 0);
}

// No loader objects to any of these notes, so they must not keep Opdock's own note from being
// found.
TEST(FileFacts, OtherNotesDoNotMatter) {
  const struct {
    const char* name;
    Bytes notes;
  } rows[] = {
      {"none", Bytes()},
      {"a build-id of 20 bytes, which ends on a multiple of 4", foreign_note(4, 20, 36)},
      {"a descriptor that leaves the segment", foreign_note(4, 1 << 20, 32)},
      {"a descriptor whose size overflows", foreign_note(4, 0xffffffff, 32)},
      {"a name that leaves the segment", foreign_note(1 << 16, 8, 32)},
      {"thousands of empty notes", Bytes(std::string(1 << 16, '\0'))},
      {"bytes that are no note", Bytes(std::string(100, 'x'))},
  };
  for (const auto& [name, notes] : rows) {
    for (const uint64_t alignment : {1, 4, 8, 16}) {
      const FileFacts facts = read_notes(notes, alignment);
      EXPECT_EQ(texts(facts), "") << name << ", aligned to " << alignment;
      ASSERT_TRUE(facts.note);
      EXPECT_EQ(facts.note->name, "axpy");
      const FileFacts none = read_notes(notes, alignment, false);
      ASSERT_EQ(none.reasons.size(), 1u) << name << "\n" << texts(none);
      EXPECT_EQ(none.reasons[0].code, Code::kNoteMissing);
    }
  }
}

TEST(FileFacts, NotesAlignedToEightInASegmentAlignedToFour) {
  Plugin plugin;
  plugin.note_alignment = 8;
  plugin.file().u64((plugin.file(), plugin.note_header) + 48, 4);
  EXPECT_EQ(texts(read(plugin)), "");
}

TEST(FileFacts, NoteSegmentsMayOverlap) {
  Plugin plugin;
  plugin.file();
  for (size_t i = 0; i < 56; ++i) {
    plugin.file().u8(plugin.stack_header + i, plugin.file().get(plugin.note_header + i, 1));
  }
  EXPECT_EQ(texts(read(plugin)), "");
  EXPECT_TRUE(read(plugin).note);
}

TEST(FileFacts, SectionHeadersThatAreCutOffAreANotice) {
  Plugin plugin = plugin_with(usual_images());
  plugin.cut((plugin.file(), plugin.sections) + 1);
  const FileFacts facts = read(plugin);
  ASSERT_EQ(facts.reasons.size(), 1u) << texts(facts);
  EXPECT_EQ(facts.reasons[0].code, Code::kSectionsCut);
  EXPECT_EQ(info(Code::kSectionsCut).severity, Severity::kNotice);
  EXPECT_EQ(facts.images.size(), 3u);
}

TEST(FileFacts, LongNames) {
  for (const size_t size : {4096, 10000, 1 << 20}) {
    Plugin plugin;
    plugin.runpath = std::string(size - 1, 'r');
    plugin.needed = {std::string(5000, 'n')};
    const FileFacts facts = read(plugin);
    EXPECT_EQ(texts(facts), "");
    EXPECT_EQ(facts.runpath, plugin.runpath);
    EXPECT_EQ(facts.needed, plugin.needed);
  }
  Plugin plugin;
  plugin.runpath = std::string(1 << 20, 'r');
  const FileFacts facts = read(plugin);
  ASSERT_EQ(facts.reasons.size(), 1u) << texts(facts);
  EXPECT_EQ(facts.reasons[0].code, Code::kElfMalformed);
}

// Each name is short enough, but reading all of them would take too long.
TEST(FileFacts, ManyLongNamesAreTooMuch) {
  Plugin plugin;
  plugin.needed.assign(40, "x");
  plugin.soname = std::string(1 << 19, 's');
  plugin.file();
  const uint64_t long_name = plugin.file().get(plugin.dyn(14), 8);
  for (size_t i = 0; i < 40; ++i) plugin.file().u64(plugin.dynamic + 16 * i + 8, long_name);
  const FileFacts facts = read(plugin);
  ASSERT_FALSE(facts.reasons.empty());
  EXPECT_LE(facts.reasons.size(), 8u);
  EXPECT_EQ(facts.reasons[0].code, Code::kElfMalformed);
}

// Only glibc's loader up to 2.34 checks a p_align other than the page size.
TEST(FileFacts, AlignmentOfSegments) {
  const auto with_alignment = [](uint64_t alignment) {
    Plugin plugin;
    plugin.file().u64((plugin.file(), plugin.load1) + 48, alignment);
    return texts(read(plugin));
  };
  const bool lenient = *Version::parse(gnu_get_libc_version()) >= Version{2, 35};
  for (const uint64_t alignment : {uint64_t{0}, uint64_t{1}, uint64_t{16}, uint64_t{1} << 21}) {
    EXPECT_EQ(with_alignment(alignment).empty(), lenient) << alignment;
  }
  EXPECT_EQ(with_alignment(0x1000), "");
}

// A loader maps nothing from the file for a segment that is only memory and starts on a page
// boundary.
TEST(FileFacts, ASegmentOfMemoryAloneMayLieBehindTheFile) {
  const auto with_segment = [](uint64_t offset, uint64_t address) {
    Plugin plugin;
    plugin.file();
    const size_t header = plugin.stack_header;  // replaces PT_GNU_STACK by a PT_LOAD
    plugin.file().u32(header, 1).u32(header + 4, 6).u64(header + 8, offset);
    plugin.file().u64(header + 16, address).u64(header + 32, 0).u64(header + 40, 100);
    plugin.file().u64(header + 48, 0x1000);
    return texts(read(plugin));
  };
  EXPECT_EQ(with_segment(0x10000000, 0x10000000), "");
  EXPECT_NE(with_segment(0x10000010, 0x10000010).find("elf-truncated"), std::string::npos);
  EXPECT_EQ(with_segment(0x10, 0x10000010), "");
}

TEST(FileFacts, AnOpdockNoteOfAnotherTypeIsNone) {
  Plugin plugin;
  plugin.notes = 2;
  plugin.file();
  plugin.file().u32(plugin.note + 8, 9);  // changes the first note; the second one counts
  EXPECT_EQ(texts(read(plugin)), "");
}

// A library that is not a plugin has facts too.
TEST(FileFacts, OfAPlainSharedObject) {
  Plugin plugin;
  plugin.notes = 0;
  plugin.section_headers = false;
  plugin.needed = {"libc.so.6"};
  const FileFacts facts = read(plugin);
  ASSERT_EQ(facts.reasons.size(), 1u) << texts(facts);
  EXPECT_EQ(facts.reasons[0].code, Code::kNoteMissing);
  EXPECT_EQ(facts.needed, plugin.needed);
  EXPECT_FALSE(facts.note);
}

TEST(FileFacts, ImagesOfTheTable) {
  std::vector<Image> images = usual_images();
  images.push_back({2, 4, "softmax.cuh", 0, 0, Bytes("__global__ void k();\n"), ""});
  images.push_back({10, 3, "gfx90a:sramecc+:xnack-", 6, 2, code_object(0x3f, 0xe00), ""});
  Plugin plugin = plugin_with(images);
  const FileFacts facts = read(plugin, Depth::kInspect);
  EXPECT_EQ(texts(facts), "");
  ASSERT_EQ(facts.images.size(), 5u);
  for (size_t i = 0; i < images.size(); ++i) {
    EXPECT_EQ(facts.images[i].arch, images[i].arch);
    EXPECT_EQ(facts.images[i].claimed_arch, "");
    EXPECT_TRUE(facts.images[i].from_table);
    EXPECT_EQ(facts.images[i].size, images[i].bytes.size());
    Bytes& file = plugin.file();
    const auto begin = file.data.begin() + static_cast<std::ptrdiff_t>(facts.images[i].offset);
    EXPECT_TRUE(std::equal(images[i].bytes.data.begin(), images[i].bytes.data.end(), begin));
  }
  EXPECT_EQ(facts.images[0].toolkit.text(), "12.9");
  EXPECT_EQ(facts.images[4].backend, Backend::kRocm);
  EXPECT_EQ(facts.image_table.offset, plugin.images);
  EXPECT_EQ(facts.image_table.address, plugin.images);
  EXPECT_EQ(facts.image_table.size, plugin.image_table.size());
  EXPECT_EQ(facts.note_address, plugin.descriptor);
}

TEST(FileFacts, AreReadByManyThreadsAtOnce) {
  Plugin plugin = plugin_with(usual_images());
  plugin.needed = {"libc.so.6"};
  const int fd = open_bytes(plugin.file().data);
  const uint64_t size = plugin.file().size();
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 4; ++j) {
        const FileFacts facts = read_file_facts(fd, size, "p", Depth::kInspect);
        if (facts.images.size() == 3 && facts.reasons.empty()) ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 32);
  close(fd);
}

}  // namespace
}  // namespace opdock
