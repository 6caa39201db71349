// Tests zip archives: what is read of valid ones, and that nothing in a damaged one is trusted.
// SPDX-License-Identifier: Apache-2.0
#include "inspect/zip.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "base/fd.h"
#include "support/temporary_folder.h"
#include "support/zip_builder.h"

namespace opdock {
namespace {

using opdock_test::zip_of;
using opdock_test::ZipMember;
using opdock_test::ZipOptions;

// An archive on disk and the result of reading it.
class Archive {
 public:
  explicit Archive(const std::string& bytes) {
    fd_ = Fd(open(folder_.write("a.zip", bytes).c_str(), O_RDONLY | O_CLOEXEC));
    zip_ = Zip::open(fd_.get(), bytes.size(), &problem);
    if (!zip_) return;
    zip_->for_each(
        [&](ZipEntry&& entry) {
          entries.push_back(std::move(entry));
          return true;
        },
        &problem);
  }
  std::string read(const ZipEntry& entry, uint64_t most = UINT64_MAX) {
    std::string bytes;
    const bool was_read = zip_->read(
        entry, most,
        [&](const uint8_t* piece, size_t count) {
          bytes.append(reinterpret_cast<const char*>(piece), count);
          return true;
        },
        &problem);
    return was_read ? bytes : "";
  }
  std::string read_only() { return entries.size() == 1 ? read(entries[0]) : ""; }

  std::string problem;
  std::vector<ZipEntry> entries;

 private:
  opdock_test::TemporaryFolder folder_;
  Fd fd_;
  std::optional<Zip> zip_;
};

std::string many(size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i * i >> 3));
  return bytes;
}

TEST(Zip, ReadsStoredAndDeflatedMembers) {
  const std::string large = many(1'000'000);
  Archive archive(zip_of({{.name = "a/x.so", .bytes = "stored"},
                          {.name = "a/y.so", .bytes = large, .deflated = true},
                          {.name = "a/z.so", .bytes = large},
                          {.name = "a/", .mode = 040755},
                          {.name = "bin/tool", .bytes = "x", .mode = 0100755},
                          {.name = "empty", .bytes = "", .deflated = true},
                          {.name = "link", .bytes = "a", .mode = 0120777}}));
  ASSERT_EQ(archive.entries.size(), 7u) << archive.problem;
  EXPECT_EQ(archive.read(archive.entries[0]), "stored");
  EXPECT_EQ(archive.read(archive.entries[1]), large);
  EXPECT_EQ(archive.read(archive.entries[2]), large);
  EXPECT_EQ(archive.read(archive.entries[5]), "");
  EXPECT_EQ(archive.problem, "");
  EXPECT_TRUE(archive.entries[3].is_folder);
  EXPECT_TRUE(archive.entries[4].is_program);
  EXPECT_FALSE(archive.entries[0].is_program);
  EXPECT_TRUE(archive.entries[6].is_link);
  EXPECT_EQ(archive.entries[6].position, 6u);
}

TEST(Zip, ReadsOnlyTheBeginningIfAsked) {
  const std::string large = many(700'000);
  Archive archive(
      zip_of({{.name = "y", .bytes = large, .deflated = true}, {.name = "z", .bytes = large}}));
  ASSERT_EQ(archive.entries.size(), 2u);
  EXPECT_EQ(archive.read(archive.entries[0], 16), large.substr(0, 16));
  EXPECT_EQ(archive.read(archive.entries[1], 300'000), large.substr(0, 300'000));
}

TEST(Zip, ReadsZip64AndComments) {
  for (const bool zip64 : {false, true}) {
    Archive archive(
        zip_of({{.name = "x", .bytes = "one", .zip64 = zip64}},
               {.comment = "PK\5\6 of no meaning, long enough for a record", .zip64 = zip64}));
    ASSERT_EQ(archive.entries.size(), 1u) << archive.problem;
    EXPECT_EQ(archive.read_only(), "one") << archive.problem;
  }
}

// As in a self-extracting program: offsets count from the start of the archive, or from the start
// of the file.
TEST(Zip, ReadsBehindOtherBytes) {
  const std::string before = "#!/bin/sh\n" + std::string(5000, 'x');
  for (const bool zip64 : {false, true}) {
    const std::string alone =
        zip_of({{.name = "x", .bytes = "one", .zip64 = zip64}, {.name = "y"}}, {.zip64 = zip64});
    Archive archive(before + alone);
    ASSERT_EQ(archive.entries.size(), 2u) << archive.problem;
    EXPECT_EQ(archive.read(archive.entries[0]), "one") << archive.problem;
  }
  const auto begin = static_cast<int64_t>(before.size());
  Archive counted(before + zip_of({{.name = "x", .bytes = "one", .header = begin}},
                                  {.directory = begin + 30 + 1 + 3}));
  EXPECT_EQ(counted.read_only(), "one") << counted.problem;
}

TEST(Zip, RefusesWhatIsNoWholeArchive) {
  const std::string good = zip_of({{.name = "x", .bytes = many(300)}});
  EXPECT_EQ(Archive("").problem, "no end of a zip archive's directory");
  EXPECT_EQ(Archive("PK\3\4").problem, "no end of a zip archive's directory");
  for (size_t size = 0; size < good.size(); ++size) {
    const Archive cut(good.substr(0, size));
    EXPECT_NE(cut.problem, "") << size;
  }
  Archive misplaced(zip_of({{.name = "x"}}, {.before = "abc", .directory = 0}));
  EXPECT_EQ(misplaced.read_only(), "");
  EXPECT_EQ(misplaced.problem, "no header of the member at 0x22");
  EXPECT_NE(Archive(zip_of({{.name = "x"}}, {.count = 2})).problem, "");
  EXPECT_EQ(Archive(zip_of({{.name = "x"}, {.name = "y"}}, {.count = 1})).problem,
            "more bytes in the directory than its entries have");
  EXPECT_NE(Archive(zip_of({{.name = "x"}}, {.directory = 1 << 30})).problem, "");
  EXPECT_NE(
      Archive(zip_of({}, {.count = 2'000'000, .zip64 = true})).problem.find("above the limit"),
      std::string::npos);
  EXPECT_NE(Archive(zip_of({}, {.directory = int64_t{1} << 62, .zip64 = true})).problem, "");
}

TEST(Zip, RefusesMembersThatAreNotWhatTheDirectorySays) {
  struct Case {
    ZipMember member;
    const char* problem;
  };
  const Case cases[] = {
      {{.name = "x", .bytes = "abc", .flags = 1}, "an encrypted member"},
      {{.name = "x", .bytes = "abc", .method = 12}, "compression method 12"},
      {{.name = "x", .bytes = "abc", .local_name = "y"},
       "another name in the member's header than in the directory"},
      {{.name = "x", .bytes = "abc", .size = 2}, "a stored member of 2 bytes in 3"},
      {{.name = "x", .bytes = "abc", .deflated = true, .size = 2},
       "more bytes than the 2 that the directory says"},
      {{.name = "x", .bytes = "abc", .deflated = true, .size = 4},
       "3 bytes instead of the 4 that the directory says"},
      {{.name = "x", .bytes = "abc", .crc = 7}, "a checksum that is not the directory's"},
      {{.name = "x", .bytes = "abc", .deflated = true, .crc = 7},
       "a checksum that is not the directory's"},
      {{.name = "x", .bytes = "abc", .deflated = true, .behind = "d"},
       "bytes behind the end of the compressed ones"},
      {{.name = "x", .bytes = "abc", .header = 5}, "no header of the member at 0x5"},
      {{.name = "x", .bytes = "\xff\xff\xff", .method = 8}, "damaged compressed bytes"},
      {{.name = "x", .bytes = "abc", .deflated = true, .size = 0xfffffffe},
       "4294967294 bytes packed into 8, above the limit of 200 to 1"},
  };
  for (const Case& one : cases) {
    Archive archive(zip_of({one.member}));
    ASSERT_EQ(archive.entries.size(), 1u) << archive.problem;
    EXPECT_EQ(archive.read_only(), "");
    EXPECT_EQ(archive.problem, one.problem);
  }
}

// Replaces each number of the 64-bit headers by values that would overflow a sum or a shift.
TEST(Zip, BelievesNo64BitNumber) {
  const ZipMember member = {.name = "x", .bytes = "abcdefg", .deflated = true, .zip64 = true};
  const std::string good = zip_of({member}, {.zip64 = true});
  ASSERT_EQ(Archive(good).read_only(), member.bytes);
  const size_t extra = good.find("x\1", good.find("PK\1\2")) + 1;  // id, length, then three numbers
  const size_t end = good.find("PK\6\6"), locator = good.find("PK\6\7");
  struct Lie {
    size_t at;
    const char* problem;  // part of the problem
  };
  const Lie lies[] = {{extra + 4, "above the limit of"},
                      {extra + 12, "beyond where members end"},
                      {extra + 20, "no header of the member at"},
                      {end + 32, "above the limit of"},
                      {end + 40, "beyond its own end"},
                      {end + 48, "beyond its own end"},
                      {locator + 8, "no 64-bit directory record at"}};
  for (const Lie& lie : lies) {
    for (const uint64_t value :
         {UINT64_MAX, UINT64_MAX - 7, uint64_t{1} << 63, uint64_t{1} << 40}) {
      std::string bytes = good;
      std::memcpy(&bytes[lie.at], &value, sizeof value);
      Archive archive(bytes);
      EXPECT_EQ(archive.read_only(), "") << lie.at << " " << value;
      EXPECT_NE(archive.problem.find(lie.problem), std::string::npos)
          << lie.at << " " << value << ": " << archive.problem;
    }
  }
  // Bytes before an archive move its directory too.
  std::string early = good;
  early[locator + 8] = static_cast<char>(early[locator + 8] - 5);
  EXPECT_NE(Archive(early).problem.find("no 64-bit directory record at"), std::string::npos);
  early = "12345" + good;
  early[end + 5 + 48] = static_cast<char>(early[end + 5 + 48] + 3);
  EXPECT_NE(Archive(early).problem.find("no 64-bit directory record at"), std::string::npos);
  for (const uint16_t length : {0, 8, 16, 23, 25, 0xffff}) {
    std::string bytes = good;
    std::memcpy(&bytes[extra + 2], &length, sizeof length);
    Archive archive(bytes);
    EXPECT_TRUE(archive.entries.empty()) << length;
    EXPECT_NE(archive.problem.find("without its 64-bit sizes"), std::string::npos) << length;
  }
}

TEST(Zip, NamesThatLeadElsewhereAreUnsafe) {
  for (const char* name : {"a", "a/b.so", "a..b/c", "..a/b", "a/...", "ä/x.so"}) {
    EXPECT_EQ(unsafe_name(name), "") << name;
  }
  using namespace std::string_literals;
  for (const std::string& name : {""s, "/a"s, "../a"s, "a/../b"s, "a/.."s, "a\\b"s, "a\0b"s,
                                  "\xff"s, std::string(5000, 'a')}) {
    EXPECT_NE(unsafe_name(name), "") << name;
  }
}

}  // namespace
}  // namespace opdock
