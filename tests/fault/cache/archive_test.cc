// Tests export and import, and archives made to do harm.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "cache/manage.h"
#include "support.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;
using cache::Exported;
using cache::Imported;
using cache::Layout;

Layout layout(const CacheFolder& folder) {
  return {folder.path("cache")};
}

class Archive : public ::testing::Test {
 protected:
  void SetUp() override {
    publish_unrelated_entry(from_);
    expect_cache_usable(from_);
    Exported done;
    std::vector<Reason> reasons;
    ASSERT_TRUE(export_entries(layout(from_), file_, &done, &reasons)) << text(reasons);
    EXPECT_EQ(done.entries, 3u);
    EXPECT_TRUE(done.left_out.empty());
    bytes_ = read(file_);
    EXPECT_EQ(bytes_.size(), done.bytes);
    EXPECT_EQ(bytes_.size() % 512, 0u);
  }

  // Expects the import of `bytes` to be refused with `code` and to add nothing.
  void expect_refused(const std::string& bytes, Code code, const std::string& what) {
    CacheFolder to;
    write(to.path("in.tar"), bytes);
    Imported done;
    std::vector<Reason> reasons;
    ASSERT_FALSE(import_entries(layout(to), to.path("in.tar"), true, &done, &reasons)) << what;
    ASSERT_EQ(reasons.size(), 1u) << what << text(reasons);
    ASSERT_EQ(reasons[0].code, code) << what << text(reasons);
    ASSERT_EQ(done.entries, 0u);
    ASSERT_TRUE(list_entries(layout(to), false).empty()) << what;
    ASSERT_TRUE(to.temp().empty()) << what;
    ASSERT_FALSE(fs::exists(to.path("escaped"))) << what;
  }

  // Returns the archive with its first header changed and the header's checksum corrected.
  std::string with_header(const std::function<void(std::string*)>& change) const {
    std::string header = bytes_.substr(0, 512);
    change(&header);
    header.replace(148, 8, 8, ' ');
    unsigned sum = 0;
    for (const char c : header) sum += static_cast<uint8_t>(c);
    char text[8];
    std::snprintf(text, sizeof text, "%06o", sum);
    header.replace(148, 8, std::string(text, 7) + " ");
    return header + bytes_.substr(512);
  }
  std::string with_name(const std::string& prefix, const std::string& name) const {
    return with_header([&](std::string* header) {
      header->replace(0, 100, name + std::string(100 - name.size(), '\0'));
      header->replace(345, 155, prefix + std::string(155 - prefix.size(), '\0'));
    });
  }

  CacheFolder from_;
  std::string file_ = from_.path("out.tar"), bytes_;
};

TEST_F(Archive, WorksElsewhereAndTwice) {
  CacheFolder to;
  Imported done;
  std::vector<Reason> reasons;
  ASSERT_TRUE(import_entries(layout(to), file_, true, &done, &reasons)) << text(reasons);
  EXPECT_EQ(done.entries, 3u);
  EXPECT_EQ(done.present, 0u);
  expect_cache_usable(to);
  done = {};
  ASSERT_TRUE(import_entries(layout(to), file_, true, &done, &reasons)) << text(reasons);
  EXPECT_EQ(done.entries, 0u);
  EXPECT_EQ(done.present, 3u);
  // From here on the file system is read-only.
  arm(to.path("cache"), {"", 0, Fault::kFail, EROFS});
  EXPECT_EQ(to.open()->find(request(), nullptr, &reasons).size(), 1u);
  EXPECT_EQ(to.open()->find(plugin_request(), nullptr, &reasons).size(), 1u);
  disarm();
  EXPECT_TRUE(reasons.empty()) << text(reasons);
}

// An archive's digests are consistent whoever made it, so they do not prove where it comes from.
TEST_F(Archive, CodeIsTakenFromTrustedMakersAlone) {
  CacheFolder to;
  Imported done;
  std::vector<Reason> reasons;
  EXPECT_FALSE(import_entries(layout(to), file_, false, &done, &reasons));
  ASSERT_EQ(reasons.size(), 1u) << text(reasons);
  EXPECT_EQ(reasons[0].code, Code::kCacheUntrusted);
  EXPECT_NE(reasons[0].found.find("of 3 entries"), std::string::npos) << text(reasons);
  EXPECT_NE(reasons[0].advice.find("--trust"), std::string::npos);
  EXPECT_EQ(done.entries, 0u);
  EXPECT_TRUE(list_entries(layout(to), false).empty());
  EXPECT_TRUE(to.temp().empty());
}

TEST_F(Archive, AnyTarReadsIt) {
  if (std::system("tar --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no tar";
  const std::string to = from_.path("unpacked");
  make_folder(to);
  ASSERT_EQ(std::system(("tar -C " + to + " -xf " + file_).c_str()), 0);
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(to)) {
    if (!entry.is_regular_file()) continue;
    ++files;
    const std::string name = fs::relative(entry.path(), to).string();
    EXPECT_EQ(read(entry.path().string()), read(from_.path("cache/" + name))) << name;
  }
  EXPECT_EQ(files, 5u);
}

TEST_F(Archive, DamagedEntriesAreLeftOut) {
  write(from_.open()->find(request(), nullptr, nullptr)[0]->path(), "damaged");
  Exported done;
  ASSERT_TRUE(export_entries(layout(from_), file_, &done, nullptr));
  EXPECT_EQ(done.entries, 2u);
  ASSERT_EQ(done.left_out.size(), 1u);
}

TEST_F(Archive, EveryCutIsNoticed) {
  for (size_t size = 0; size < bytes_.size() - 512; size += 256) {
    expect_refused(bytes_.substr(0, size), Code::kCacheArchive, std::to_string(size));
    if (HasFatalFailure()) return;
  }
}

TEST_F(Archive, FlippedBytesAreNoticed) {
  // Some flips have no effect: those in the padding of names and files.
  for (size_t at = 0; at < bytes_.size() - 1024; at += 37) {
    std::string bytes = bytes_;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x15);
    CacheFolder to;
    write(to.path("in.tar"), bytes);
    Imported done;
    std::vector<Reason> reasons;
    if (import_entries(layout(to), to.path("in.tar"), true, &done, &reasons)) {
      ASSERT_EQ(bytes_[at], '\0') << at;
      for (const cache::Listed& listed : list_entries(layout(to), true)) {
        ASSERT_EQ(listed.state, cache::OpenedEntry::kGood) << at;
      }
    } else {
      ASSERT_TRUE(has(reasons, Code::kCacheArchive)) << at << text(reasons);
      ASSERT_TRUE(list_entries(layout(to), false).empty()) << at;
    }
  }
}

TEST_F(Archive, NamesThatLeaveTheFolderAreRefused) {
  const std::string key(64, 'a'), good = "v1/kernels/aa/" + key;
  for (const auto& [prefix, name] : std::vector<std::pair<std::string, std::string>>{
           {"", "../escaped"},
           {"", "/escaped"},
           {"", "escaped"},
           {"..", "escaped"},
           {good, "../../../../../escaped"},
           {good, "0123456789abcdef/../../../../../../escaped"},
           {"v1/plugin/aa/" + key, "0123456789abcdef/../x"},
           {"v1/plugin/aa/" + key, "0123456789abcdef//x"},
           {"v1/plugin/aa/" + key, "0123456789abcdef/./x"},
           {"v1/plugin/aa/" + key, "0123456789abcdef/"},
           {good, "0123456789ABCDEF"},
           {good, ".."},
           {"v1/kernels/ab/" + key, "0123456789abcdef"},
           {"v1/locks/aa/" + key, "0123456789abcdef"},
           {"v2/kernels/aa/" + key, "0123456789abcdef"},
           {"v1/kernels/aa", "aaaa"}}) {
    expect_refused(with_name(prefix, name), Code::kCacheArchive, prefix + "/" + name);
    if (HasFatalFailure()) return;
  }
}

TEST_F(Archive, OnlyPlainFilesAreTaken) {
  for (const char type : {'1', '2', '3', '4', '5', '6', 'g', 'x', 'L'}) {
    expect_refused(with_header([&](std::string* header) { (*header)[156] = type; }),
                   Code::kCacheArchive, std::string(1, type));
    if (HasFatalFailure()) return;
  }
}

TEST_F(Archive, ImpossibleSizesAreRefused) {
  for (const char* size : {"77777777777", "00000000001", "0000000000x", "-0000000001"}) {
    expect_refused(with_header([&](std::string* header) { header->replace(124, 11, size); }),
                   Code::kCacheArchive, size);
    if (HasFatalFailure()) return;
  }
}

TEST_F(Archive, AnEntryUnderAnothersNameIsRefused) {
  const std::string key = request("third").key();
  expect_refused(with_name("v1/kernels/" + key.substr(0, 2) + "/" + key, maker().id),
                 Code::kCacheArchive, "another's name");
}

TEST_F(Archive, TheSameFileTwiceIsRefused) {
  const std::string contents = bytes_.substr(0, bytes_.size() - 1024);
  expect_refused(contents + bytes_, Code::kCacheArchive, "twice");
}

TEST_F(Archive, OfANewerFormatIsRefused) {
  std::string bytes = bytes_;
  bytes.replace(512, 600, newer_format(bytes.substr(512, 600)));
  expect_refused(bytes, Code::kCacheNewer, "newer");
}

TEST_F(Archive, ADamagedEntryGivesWay) {
  CacheFolder to;
  write(publish_plugin(to.open().get(), nullptr)->folder() + "/axpy.so", "damaged");
  Imported done;
  std::vector<Reason> reasons;
  ASSERT_TRUE(import_entries(layout(to), file_, true, &done, &reasons)) << text(reasons);
  EXPECT_EQ(done.entries, 3u);
  expect_cache_usable(to);
}

class ArchiveFault : public Archive, public ::testing::WithParamInterface<int> {};

TEST_P(ArchiveFault, ImportOnAFullDisk) {
  for (const char* function : {"open", "write", "fsync", "mkdir", "renameat2"}) {
    CacheFolder to;
    write(to.path("in.tar"), bytes_);
    Imported done;
    std::vector<Reason> reasons;
    arm(to.path("cache"), {function, 2, Fault::kFail, GetParam()});
    const bool is_good = import_entries(layout(to), to.path("in.tar"), true, &done, &reasons);
    disarm();
    EXPECT_TRUE(is_good || has(reasons, Code::kCacheWrite)) << function << text(reasons);
    EXPECT_TRUE(to.temp().empty()) << function;
    publish_unrelated_entry(to);
    expect_cache_usable(to);
  }
}

TEST_P(ArchiveFault, ExportOnAFullDisk) {
  for (const char* function : {"open", "write", "fsync", "rename"}) {
    Exported done;
    std::vector<Reason> reasons;
    arm(from_.path("new.tar"), {function, 1, Fault::kFail, GetParam()});
    EXPECT_FALSE(export_entries(layout(from_), from_.path("new.tar"), &done, &reasons));
    disarm();
    EXPECT_TRUE(has(reasons, Code::kCacheWrite)) << function << text(reasons);
    for (const auto& entry : fs::directory_iterator(from_.path())) {
      EXPECT_EQ(entry.path().string().find("new.tar"), std::string::npos) << entry.path();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Errors, ArchiveFault, ::testing::Values(ENOSPC, EIO, EDQUOT));

// ---- clear and verify

TEST(Manage, VerifySetsAsideWhatIsDamaged) {
  CacheFolder folder;
  publish_unrelated_entry(folder);
  write(publish_plugin(folder.open().get(), nullptr)->folder() + "/axpy.so", "damaged");
  size_t damaged = 0;
  for (const cache::Listed& listed : verify(layout(folder))) {
    damaged += listed.state == cache::OpenedEntry::kDamaged;
  }
  EXPECT_EQ(damaged, 1u);
  EXPECT_EQ(list_entries(layout(folder), true).size(), 1u);
  expect_cache_usable(folder);
}

TEST(Manage, EntriesMayBeMoreThanAProcessCanHaveOpen) {
  constexpr size_t kEntries = 40;
  CacheFolder folder;
  for (size_t i = 0; i < kEntries; ++i) {
    ASSERT_NE(folder.open()->publish_blobs(request(std::to_string(i)), maker(), blobs(), nullptr),
              nullptr);
  }
  const auto is_whole = [](const std::vector<cache::Listed>& all) {
    return all.size() == kEntries &&
           std::all_of(all.begin(), all.end(), [](const cache::Listed& listed) {
             return listed.state == cache::OpenedEntry::kGood && !listed.subject.empty();
           });
  };
  EXPECT_EQ(in_child([&] {
              rlimit files{};
              getrlimit(RLIMIT_NOFILE, &files);
              files.rlim_cur = 30;
              setrlimit(RLIMIT_NOFILE, &files);
              if (!is_whole(list_entries(layout(folder), false))) return 1;
              if (!is_whole(verify(layout(folder)))) return 2;
              Exported done;
              if (!export_entries(layout(folder), folder.path("out.tar"), &done, nullptr)) return 3;
              return done.entries == kEntries && done.left_out.empty() ? 0 : 4;
            }),
            0);
}

TEST(Manage, ClearKeepsOnlyWhatIsInUse) {
  CacheFolder folder;
  const auto held = publish_plugin(folder.open().get(), nullptr);
  const auto builder = folder.open();
  const auto build = builder->make_folder(nullptr);
  const std::string newer =
      folder.open()->publish_blobs(request(), maker(), blobs(), nullptr)->path();
  write(newer, newer_format(read(newer)));
  publish_unrelated_entry(folder);
  builder->remember_failure(request("x"), maker(), {}, "log");
  const cache::Cleared done = clear(layout(folder));
  EXPECT_EQ(done.removed, 2u);
  EXPECT_EQ(done.in_use, 1u);
  EXPECT_EQ(read(held->folder() + "/axpy.so"), kLibrary);
  EXPECT_TRUE(fs::exists(*build));
  EXPECT_FALSE(fs::exists(newer));
  EXPECT_FALSE(builder->failure(request("x"), maker(), nullptr));
  publish_unrelated_entry(folder);
  expect_cache_usable(folder);
}

TEST(Manage, ClearTouchesNothingOfALaterLayout) {
  CacheFolder folder;
  publish_unrelated_entry(folder);
  make_folder(folder.path("cache/v2"));
  write(folder.path("cache/v2/entry"), "x");
  write(folder.path("cache/v1/unknown"), "x");
  evict_now(folder, 0);
  clear(layout(folder));
  EXPECT_EQ(read(folder.path("cache/v2/entry")), "x");
  EXPECT_EQ(read(folder.path("cache/v1/unknown")), "x");
}

}  // namespace
}  // namespace opdock::testing
