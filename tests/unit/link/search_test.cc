// Tests finding libraries and the symbols that they provide, in folders made for the test.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "link/linker.h"
#include "note/file_facts.h"
#include "support/elf_builder.h"
#include "support/temporary_folder.h"

namespace opdock {
namespace {

using opdock_test::Plugin;
namespace fs = std::filesystem;

#if defined(__x86_64__)
constexpr uint16_t kHere = 62, kElsewhere = 183;
#else
constexpr uint16_t kHere = 183, kElsewhere = 62;
#endif

using Texts = std::vector<std::string>;

class Libraries : public testing::Test {
 protected:
  // Writes a shared object that defines `defines`, leaves `wants` undefined and needs the libraries
  // `needed`.
  std::string make(const std::string& path, const std::vector<std::string>& defines = {},
                   const std::vector<std::string>& needed = {},
                   const std::vector<std::string>& wants = {}, const std::string& runpath = "",
                   const std::string& rpath = "", uint16_t machine = kHere) {
    Plugin plugin;
    plugin.machine = machine;
    plugin.notes = 0;
    plugin.relocations = true;
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
  LinkFacts link(const std::string& path) { return link(path, this_process(1)); }
  LinkFacts link(const std::string& path, ProcessModel process) {
    const int fd = open(path.c_str(), O_RDONLY);
    struct stat status{};
    fstat(fd, &status);
    const uint64_t size = static_cast<uint64_t>(status.st_size);
    const FileFacts facts = read_file_facts(fd, size, path, Depth::kInspect);
    close(fd);
    return Linker(std::move(process), &files).link(facts.library, path);
  }
  static Texts named(const LinkFacts& facts, LinkProblem::Kind kind) {
    Texts names;
    for (const LinkProblem& problem : facts.problems) {
      if (problem.kind == kind) names.push_back(problem.name);
    }
    return names;
  }
  Texts missing(const std::string& path) { return named(link(path), LinkProblem::Kind::kMissing); }
  Texts undefined(const std::string& path) { return named(link(path), LinkProblem::Kind::kSymbol); }
  // Returns where a file in `root` with that RUNPATH finds a library, or "" if nowhere.
  std::string find(const std::string& name, const std::string& runpath, SearchPlaces places = {}) {
    Dynamic dynamic;
    dynamic.runpath = runpath;
    dynamic.has_runpath = !runpath.empty();
    LibrarySearch search(std::move(places), &files);
    const auto found = search.find(name, Needer(root + "/p.so", dynamic, nullptr));
    return found ? found->path : std::string();
  }

  const Files files;

  const opdock_test::TemporaryFolder folder;
  const std::string root = folder.path();
};

TEST_F(Libraries, MissingOnesAreNamed) {
  EXPECT_EQ(missing(make("p.so", {}, {"libnot-there.so.7", "libc.so.6"})),
            Texts{"libnot-there.so.7"});
}

TEST_F(Libraries, RunpathWithOrigin) {
  make("lib/libx.so", {"x"});
  for (const char* runpath :
       {"$ORIGIN/lib", "${ORIGIN}/lib", "/nowhere:$ORIGIN/../$ORIGIN", "/nowhere:$ORIGIN/lib"}) {
    const std::string path = make("p.so", {}, {"libx.so"}, {"x"}, runpath);
    const bool good = std::string(runpath).find("../") == std::string::npos;
    EXPECT_EQ(missing(path).empty(), good) << runpath;
  }
}

TEST_F(Libraries, RpathIsInheritedAndRunpathIsNot) {
  make("a/liba.so", {"a"}, {"libb.so"});
  make("b/libb.so", {"b"});
  const std::string both = "$ORIGIN/a:$ORIGIN/b";
  const std::string by_rpath = make("p1.so", {}, {"liba.so"}, {"a", "b"}, "", both);
  EXPECT_EQ(missing(by_rpath), Texts{});
  EXPECT_EQ(undefined(by_rpath), Texts{});
  const std::string by_runpath = make("p2.so", {}, {"liba.so"}, {"a", "b"}, both);
  EXPECT_EQ(missing(by_runpath), Texts{"libb.so"});
  // The library that would provide the symbol is reported missing, so the symbol is not reported
  // too.
  EXPECT_EQ(undefined(by_runpath), Texts{});
}

TEST_F(Libraries, RpathIsIgnoredBesideARunpath) {
  make("a/liba.so");
  const std::string path = make("p.so", {}, {"liba.so"}, {}, "$ORIGIN/nothing", "$ORIGIN/a");
  EXPECT_EQ(missing(path), Texts{"liba.so"});
}

TEST_F(Libraries, EnvironmentComesBeforeRunpath) {
  make("run/libe.so", {"from_runpath"});
  const std::string preferred = make("env/libe.so", {"from_environment"});
  SearchPlaces places;
  places.library_path = {root + "/env"};
  EXPECT_EQ(find("libe.so", "$ORIGIN/run", places), preferred);
  EXPECT_EQ(find("libe.so", "$ORIGIN/run"), root + "/run/libe.so");
}

TEST_F(Libraries, OtherMachinesArePassedOverAndOtherFilesAreNot) {
  make("one/libm1.so", {}, {}, {}, "", "", kElsewhere);
  EXPECT_EQ(find("libm1.so", "$ORIGIN/one:$ORIGIN/two"), "");
  const std::string good = make("two/libm1.so");
  EXPECT_EQ(find("libm1.so", "$ORIGIN/one:$ORIGIN/two"), good);
  mkfifo((root + "/one/libm2.so").c_str(), 0600);  // the loader would block on it
  std::ofstream(fs::path(root) / "one" / "libm3.so") << "INPUT(libm3.so.1)\n";
  fs::create_directories(fs::path(root) / "one" / "libm4.so");
  for (const char* name : {"libm2.so", "libm3.so", "libm4.so"}) {
    make(std::string("two/") + name);
    EXPECT_EQ(find(name, "$ORIGIN/one:$ORIGIN/two"), root + "/one/" + name);
    const LinkFacts facts = link(make("p.so", {}, {name}, {}, "$ORIGIN/one:$ORIGIN/two"));
    EXPECT_EQ(named(facts, LinkProblem::Kind::kRefused), Texts{name});
  }
}

#if defined(__x86_64__)
// Intel's processors are the loader's platform "haswell", others of the same level are not.
TEST_F(Libraries, ThePlatformIsTheLoaders) {
  const std::string command = "/lib64/ld-linux-x86-64.so.2 --list-diagnostics 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> loader(popen(command.c_str(), "r"), pclose);
  ASSERT_NE(loader, nullptr);
  std::string told;
  for (char line[512]; std::fgets(line, sizeof line, loader.get()) != nullptr;) {
    char name[64];
    if (std::sscanf(line, "dl_platform=\"%63[^\"]\"", name) == 1) told = name;
  }
  if (told.empty()) GTEST_SKIP() << "this loader does not tell its platform (glibc before 2.33)";
  __builtin_cpu_init();
  EXPECT_EQ(places_here(__builtin_cpu_supports("avx2") ? 3 : 2).platform_token, told);
}
#endif

TEST_F(Libraries, SubfoldersForProcessorsComeFirst) {
  const std::string plain = make("lib/libs.so");
  const std::string better = make("lib/glibc-hwcaps/x86-64-v3/libs.so");
  SearchPlaces places;
  places.subfolders = {"glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v2"};
  EXPECT_EQ(find("libs.so", "$ORIGIN/lib", places), better);
  EXPECT_EQ(find("libs.so", "$ORIGIN/lib"), plain);
}

TEST_F(Libraries, TheCachesBestFittingEntryIsTaken) {
  const std::string plain = make("lib/libs.so"), v3 = make("v3/libs.so"), v4 = make("v4/libs.so");
  LoaderCache cache;
  cache["libs.so"] = {{v4, "x86-64-v4"}, {v3, "x86-64-v3"}, {plain, ""}};
  SearchPlaces places;
  places.cache = std::make_shared<const LoaderCache>(cache);
  EXPECT_EQ(find("libs.so", "", places), plain);
  places.cpu_level = 3;
  EXPECT_EQ(find("libs.so", "", places), v3);
}

TEST_F(Libraries, NamesWithASlashArePaths) {
  const std::string path = make("x.so");
  EXPECT_EQ(find(path, ""), path);
  EXPECT_EQ(find("$ORIGIN/x.so", ""), path);
  EXPECT_EQ(find(root + "/y.so", ""), "");
}

TEST_F(Libraries, APathToAFifoIsNotWaitedFor) {
  const std::string fifo = root + "/fifo.so";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const LinkFacts facts = link(make("p.so", {}, {fifo}));
  EXPECT_EQ(named(facts, LinkProblem::Kind::kRefused), Texts{fifo});
  EXPECT_EQ(named(facts, LinkProblem::Kind::kMissing), Texts{});
}

// The loader takes an empty name to mean the program itself.
TEST_F(Libraries, AnEmptyNameIsNoLibrary) {
  EXPECT_EQ(missing(make("p.so", {}, {""})), Texts{});
}

TEST_F(Libraries, CirclesEnd) {
  make("liba.so", {}, {"libb.so"}, {}, "$ORIGIN");
  make("libb.so", {"b"}, {"liba.so"}, {}, "$ORIGIN");
  const std::string path = make("p.so", {}, {"liba.so"}, {"b", "c"}, "$ORIGIN");
  EXPECT_EQ(missing(path), Texts{});
  EXPECT_EQ(undefined(path), Texts{"c"});
}

TEST_F(Libraries, TheSystemsAreFound) {
  const std::string path =
      make("p.so", {}, {"libc.so.6", "libm.so.6"}, {"malloc", "cosf", "no_such_function"});
  EXPECT_EQ(missing(path), Texts{});
  EXPECT_EQ(undefined(path), Texts{"no_such_function"});
  EXPECT_EQ(named(link(path, fresh_process(1)), LinkProblem::Kind::kSymbol),
            Texts{"no_such_function"});
}

TEST_F(Libraries, WhatTheProcessHasServesUnderItsNames) {
  ProcessModel process = fresh_process(1);
  process.loaded.push_back({{"libalias.so"}, make("somewhere/real.so", {"from_alias"}), false});
  const std::string path = make("p.so", {}, {"libalias.so"}, {"from_alias"});
  EXPECT_TRUE(link(path, process).problems.empty());
  EXPECT_EQ(missing(path), Texts{"libalias.so"});
}

TEST_F(Libraries, GlobalSymbolsServeWhoDoesNotNameTheirLibrary) {
  const std::string path = make("p.so", {}, {}, {"from_program"});
  ProcessModel process = fresh_process(1);
  process.loaded.push_back({{}, make("program.so", {"from_program"}), false});
  EXPECT_EQ(link(path, process).problems.size(), 1u);
  process.loaded.back().is_global = true;
  EXPECT_TRUE(link(path, process).problems.empty());
}

// For a described machine, only version numbers are known. Sources: the GNU C Library's and
// libstdc++'s symbol versioning; glibc's release notes (GLIBC_ABI_DT_RELR came with 2.36).
TEST_F(Libraries, DescribedMachinesHaveVersionsUpToTheirOwn) {
  const struct {
    const char *needed, *newest;
    bool has;
  } rows[] = {
      {"GLIBC_2.17", "GLIBC=2.17", true},          {"GLIBC_2.28", "GLIBC=2.17", false},
      {"GLIBC_2.28", "GLIBC=2.28", true},          {"GLIBC_2.31", "GLIBC=2.28", false},
      {"GLIBC_2.34", "GLIBC=2.31", false},         {"GLIBC_2.35", "GLIBC=2.34", false},
      {"GLIBC_2.36", "GLIBC=2.36", true},          {"GLIBC_2.38", "GLIBC=2.36", false},
      {"GLIBC_2.38", "GLIBC=2.39", true},          {"GLIBC_2.41", "GLIBC=2.39", false},
      {"GLIBC_2.9", "GLIBC=2.17", true},           {"GLIBC_2.17", "GLIBC=2.9", false},
      {"GLIBC_2.3.4", "GLIBC=2.4", true},          {"GLIBC_2.38", "", true},
      {"GLIBC_ABI_DT_RELR", "GLIBC=2.36", true},   {"GLIBC_ABI_DT_RELR", "GLIBC=2.35", false},
      {"GLIBCXX_3.4.25", "GLIBCXX=3.4.25", true},  {"GLIBCXX_3.4.26", "GLIBCXX=3.4.25", false},
      {"GLIBCXX_3.4.9", "GLIBCXX=3.4.25", true},   {"GLIBCXX_3.4.30", "GLIBCXX=3.4.28", false},
      {"GLIBCXX_3.4.32", "GLIBCXX=3.4.30", false}, {"GLIBCXX_3.4.33", "GLIBCXX=3.4.33", true},
      {"GLIBCXX_3.4", "GLIBCXX=3.4.30", true},     {"CXXABI_1.3.9", "CXXABI=1.3.13", true},
      {"CXXABI_1.3.15", "CXXABI=1.3.13", false},   {"CXXABI_FLOAT128", "CXXABI=1.3.13", true},
      {"GLIBC_ABI_GNU2_TLS", "GLIBC=2.41", false}, {"GLIBC_PRIVATE", "GLIBC=2.36", true},
  };
  for (const auto& row : rows) {
    Plugin plugin;
    plugin.notes = 0;
    plugin.needed = {"libc.so.6"};
    plugin.versions = {{"libc.so.6", {row.needed}}};
    const std::string path = root + "/p.so", newest = row.newest;
    const std::vector<uint8_t>& bytes = plugin.file().data;
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    std::map<std::string, Version> versions;
    const size_t equals = newest.find('=');
    if (equals != newest.npos) {
      versions[newest.substr(0, equals)] = *Version::parse(newest.substr(equals + 1));
    }
    const LinkFacts facts = link(path, described_process(kHere, 1, versions));
    EXPECT_EQ(named(facts, LinkProblem::Kind::kVersion).empty(), row.has)
        << row.needed << " where there is " << row.newest;
  }
}

TEST_F(Libraries, OthersMayBringWhatTheLoaderDoesNotFind) {
  const std::string elsewhere = make("other/libo.so", {"o"});
  const std::string path = make("p.so", {}, {"libo.so"}, {"o"});
  const FileFacts facts = [&] {
    const int fd = open(path.c_str(), O_RDONLY);
    FileFacts read = read_file_facts(fd, fs::file_size(path), path, Depth::kInspect);
    close(fd);
    return read;
  }();
  Linker linker(fresh_process(1), &files, {{"libo.so", elsewhere}});
  const LinkFacts link = linker.link(facts.library, path);
  ASSERT_EQ(link.problems.size(), 1u) << "the symbol is found there";
  EXPECT_EQ(link.problems[0].kind, LinkProblem::Kind::kElsewhere);
  EXPECT_EQ(link.problems[0].where, elsewhere);
}

}  // namespace
}  // namespace opdock
