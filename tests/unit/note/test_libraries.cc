// Finding libraries and the symbols they bring, in folders made for the test.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>

#include "note/file_facts.h"
#include "note/libraries.h"
#include "note/loader_cache.h"
#include "support/elf_builder.h"
#include "support/temporary_folder.h"

namespace opdock {
namespace {

using opdock_test::Bytes;
using opdock_test::Plugin;
namespace fs = std::filesystem;

#if defined(__x86_64__)
constexpr uint16_t kHere = 62, kElsewhere = 183;
#else
constexpr uint16_t kHere = 183, kElsewhere = 62;
#endif

class Libraries : public testing::Test {
 protected:
  // A shared object that defines `defines`, wants `wants` and needs `needed`.
  std::string make(const std::string& path, const std::vector<std::string>& defines = {},
                   const std::vector<std::string>& needed = {},
                   const std::vector<std::string>& wants = {}, const std::string& runpath = "",
                   const std::string& rpath = "", uint16_t machine = kHere) {
    Plugin plugin;
    plugin.machine = machine;
    plugin.notes = 0;
    plugin.needed = needed;
    plugin.runpath = runpath;
    plugin.rpath = rpath;
    plugin.symbols.clear();
    for (const std::string& name : wants) plugin.symbols.push_back({name, false, 1});
    for (const std::string& name : defines) plugin.symbols.push_back({name, true, 1});
    const fs::path full = fs::path(root) / path;
    fs::create_directories(full.parent_path());
    std::ofstream out(full, std::ios::binary);
    const std::vector<uint8_t>& bytes = plugin.file().data;
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    return full;
  }
  FileFacts read(const std::string& path, Depth depth) {
    const int fd = open(path.c_str(), O_RDONLY);
    struct stat status{};
    fstat(fd, &status);
    FileFacts facts = read_file_facts(fd, static_cast<uint64_t>(status.st_size), path, depth);
    close(fd);
    return facts;
  }

  const opdock_test::TemporaryFolder folder;
  const std::string root = folder.path();
};

using Texts = std::vector<std::string>;

TEST_F(Libraries, MissingOnesAreNamedWhenJudging) {
  const std::string path = make("p.so", {}, {"libnot-there.so.7", "libc.so.6"});
  EXPECT_EQ(read(path, Depth::kJudge).missing_libraries, Texts{"libnot-there.so.7"});
  EXPECT_EQ(read(path, Depth::kInspect).missing_libraries, Texts{"libnot-there.so.7"});
}

TEST_F(Libraries, RunpathWithOrigin) {
  make("lib/libx.so", {"x"});
  for (const char* runpath :
       {"$ORIGIN/lib", "${ORIGIN}/lib", "/nowhere:$ORIGIN/../$ORIGIN", "/nowhere:$ORIGIN/lib"}) {
    const std::string path = make("p.so", {}, {"libx.so"}, {"x"}, runpath);
    const bool good = std::string(runpath).find("../") == std::string::npos;
    EXPECT_EQ(read(path, Depth::kJudge).missing_libraries.empty(), good) << runpath;
    EXPECT_EQ(read(path, Depth::kInspect).unresolved.empty(), good) << runpath;
  }
}

TEST_F(Libraries, RpathIsInheritedAndRunpathIsNot) {
  make("a/liba.so", {"a"}, {"libb.so"});
  make("b/libb.so", {"b"});
  const std::string both = "$ORIGIN/a:$ORIGIN/b";
  const std::string by_rpath = make("p1.so", {}, {"liba.so"}, {"a", "b"}, "", both);
  EXPECT_EQ(read(by_rpath, Depth::kInspect).missing_libraries, Texts{});
  EXPECT_EQ(read(by_rpath, Depth::kInspect).unresolved, Texts{});
  const std::string by_runpath = make("p2.so", {}, {"liba.so"}, {"a", "b"}, both);
  EXPECT_EQ(read(by_runpath, Depth::kJudge).missing_libraries, Texts{});
  EXPECT_EQ(read(by_runpath, Depth::kInspect).missing_libraries, Texts{"libb.so"});
  EXPECT_EQ(read(by_runpath, Depth::kInspect).unresolved, Texts{"b"});
}

TEST_F(Libraries, RpathIsIgnoredBesideARunpath) {
  make("a/liba.so");
  const std::string path = make("p.so", {}, {"liba.so"}, {}, "$ORIGIN/nothing", "$ORIGIN/a");
  EXPECT_EQ(read(path, Depth::kJudge).missing_libraries, Texts{"liba.so"});
}

TEST_F(Libraries, EnvironmentComesBeforeRunpath) {
  make("run/libe.so", {"from_runpath"});
  const std::string preferred = make("env/libe.so", {"from_environment"});
  setenv("LD_LIBRARY_PATH", (root + "/env").c_str(), 1);
  const Needer needer{root, "", "$ORIGIN/run", kHere, nullptr};
  EXPECT_EQ(find_library("libe.so", needer), preferred);
  unsetenv("LD_LIBRARY_PATH");
  EXPECT_EQ(find_library("libe.so", needer), root + "/run/libe.so");
}

TEST_F(Libraries, OtherMachinesAndOtherFilesArePassedOver) {
  make("one/libm1.so", {}, {}, {}, "", "", kElsewhere);
  std::ofstream(fs::path(root) / "one" / "libm2.so") << "INPUT(libm2.so.1)\n";
  fs::create_directories(fs::path(root) / "one" / "libm3.so");
  mkfifo((root + "/one/libm4.so").c_str(), 0600);
  const Needer needer{root, "", "$ORIGIN/one:$ORIGIN/two", kHere, nullptr};
  for (const char* name : {"libm1.so", "libm2.so", "libm3.so", "libm4.so"}) {
    EXPECT_FALSE(find_library(name, needer)) << name;
    const std::string good = make(std::string("two/") + name);
    EXPECT_EQ(find_library(name, needer), good);
  }
}

TEST_F(Libraries, NamesWithASlashArePaths) {
  const std::string path = make("x.so");
  const Needer needer{root, "", "", kHere, nullptr};
  EXPECT_EQ(find_library(path, needer), path);
  EXPECT_EQ(find_library("$ORIGIN/x.so", needer), path);
  EXPECT_FALSE(find_library(root + "/y.so", needer));
}

TEST_F(Libraries, AnEmptyNameIsNoLibrary) {
  EXPECT_EQ(read(make("p.so", {}, {""}), Depth::kJudge).missing_libraries, Texts{""});
}

TEST_F(Libraries, CirclesEnd) {
  make("liba.so", {}, {"libb.so"}, {}, "$ORIGIN");
  make("libb.so", {"b"}, {"liba.so"}, {}, "$ORIGIN");
  const FileFacts facts =
      read(make("p.so", {}, {"liba.so"}, {"b", "c"}, "$ORIGIN"), Depth::kInspect);
  EXPECT_EQ(facts.missing_libraries, Texts{});
  EXPECT_EQ(facts.unresolved, Texts{"c"});
}

TEST_F(Libraries, TheSystemsAreFound) {
  const std::string path =
      make("p.so", {}, {"libc.so.6", "libm.so.6"}, {"malloc", "cosf", "no_such_function"});
  const FileFacts facts = read(path, Depth::kInspect);
  EXPECT_EQ(facts.missing_libraries, Texts{});
  EXPECT_EQ(facts.unresolved, Texts{"no_such_function"});
}

Bytes loader_cache(const std::vector<std::tuple<uint32_t, std::string, std::string>>& entries) {
  Bytes b("glibc-ld.so.cache1.1");
  b.u32(20, entries.size()).u8(47, 0);
  b.u8(47 + 24 * entries.size(), 0);
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& [flags, name, path] = entries[i];
    const size_t e = 48 + 24 * i;
    b.u32(e, flags);
    b.u32(e + 4, b.size()).text(b.size(), name + '\0');
    b.u32(e + 8, b.size()).text(b.size(), path + '\0');
  }
  return b;
}

TEST(LoaderCache, KeepsTheRightArchitecture) {
  const Bytes b = loader_cache({{0x303, "libx.so", "/64/libx.so"},
                                {0x3, "libx.so", "/32/libx.so"},
                                {0xa03, "libx.so", "/arm/libx.so"},
                                {0x303, "libx.so", "/second/libx.so"}});
  EXPECT_EQ(parse_loader_cache(b.data, 62).at("libx.so"),
            (std::vector<std::string>{"/64/libx.so", "/second/libx.so"}));
  EXPECT_EQ(parse_loader_cache(b.data, 183).at("libx.so"), Texts{"/arm/libx.so"});
  Bytes older("ld.so-1.7.0");
  older.u8(63, 0);
  older.add(b);
  EXPECT_EQ(parse_loader_cache(older.data, 62).size(), 1u);
}

// Memory that ends before a page that cannot be read: a look behind it ends the program.
class GuardedBytes {
 public:
  GuardedBytes() {
    void* pages =
        mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) std::abort();
    pages_ = static_cast<uint8_t*>(pages);
    mprotect(pages_ + kPage, kPage, PROT_NONE);
  }
  ~GuardedBytes() { munmap(pages_, 2 * kPage); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  std::span<const uint8_t> put(std::span<const uint8_t> bytes) {
    uint8_t* const begin = pages_ + kPage - bytes.size();
    std::copy(bytes.begin(), bytes.end(), begin);
    return {begin, bytes.size()};
  }

 private:
  static constexpr size_t kPage = 65536;  // or several
  uint8_t* pages_;
};

TEST(LoaderCache, SurvivesDamage) {
  const Bytes good = loader_cache({{0x303, "libx.so", "/64/libx.so"}, {0x303, "y", "/y"}});
  GuardedBytes guarded;
  for (size_t at = 0; at < good.size(); ++at) {
    for (const uint8_t value : {0, 1, 0x7f, 0xff}) {
      std::vector<uint8_t> bytes = good.data;
      bytes[at] = value;
      for (const size_t size : {good.size(), at}) {
        const std::span<const uint8_t> part(bytes.data(), size);
        const std::string text(part.begin(), part.end());
        for (const auto& [name, paths] : parse_loader_cache(guarded.put(part), 62)) {
          EXPECT_NE(text.find(name), text.npos) << at;
          for (const std::string& path : paths) EXPECT_NE(text.find(path), text.npos) << at;
        }
      }
    }
  }
}

}  // namespace
}  // namespace opdock
