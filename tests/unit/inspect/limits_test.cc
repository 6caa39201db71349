// Tests what reading one file may cost: memory, reading of holes, and time after the program asks
// to stop. The program's own operator new simulates a machine with little memory.
// SPDX-License-Identifier: Apache-2.0
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <new>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "inspect/survey.h"
#include "note/reader.h"
#include "opdock/opdock.h"
#include "support/temporary_folder.h"

namespace {
// the largest request, in bytes, that operator new serves
std::atomic<size_t> most_at_once{SIZE_MAX};
}  // namespace

void* operator new(size_t size) {
  void* const memory = size > most_at_once ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace opdock {
namespace {

constexpr uint64_t kMiB = 1 << 20;
#ifdef __aarch64__
constexpr uint16_t kMachine = EM_AARCH64;
#else
constexpr uint16_t kMachine = EM_X86_64;
#endif

class LittleMemory {
 public:
  explicit LittleMemory(size_t most) { most_at_once = most; }
  ~LittleMemory() { most_at_once = SIZE_MAX; }
};

using Entries = std::vector<std::pair<int64_t, uint64_t>>;

// Writes a shared object with one segment that covers the whole file of `size` bytes, and with
// these dynamic entries at 4 KiB; the rest is a hole. Addresses equal offsets.
std::string object(const opdock_test::TemporaryFolder& folder, const std::string& name,
                   uint64_t size, Entries entries, const std::string& at_two_pages = "") {
  Elf64_Ehdr head{};
  std::memcpy(head.e_ident,
              "\x7f"
              "ELF\2\1\1",
              7);
  head.e_type = ET_DYN;
  head.e_machine = kMachine;
  head.e_version = EV_CURRENT;
  head.e_phoff = head.e_ehsize = sizeof head;
  head.e_phentsize = sizeof(Elf64_Phdr);
  head.e_phnum = 2;
  head.e_shentsize = sizeof(Elf64_Shdr);
  entries.emplace_back(DT_NULL, 0);
  const uint64_t bytes = entries.size() * sizeof(Elf64_Dyn);
  const Elf64_Phdr segments[2] = {{PT_LOAD, PF_R | PF_W, 0, 0, 0, size, size, 4096},
                                  {PT_DYNAMIC, PF_R | PF_W, 4096, 4096, 4096, bytes, bytes, 8}};
  const std::string path = folder.write(name, "").string();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&head), sizeof head);
  file.write(reinterpret_cast<const char*>(segments), sizeof segments);
  file.seekp(4096);
  for (const auto& [tag, value] : entries) {
    file.write(reinterpret_cast<const char*>(&tag), sizeof tag);
    file.write(reinterpret_cast<const char*>(&value), sizeof value);
  }
  file.seekp(8192);
  file << at_two_pages;
  file.close();
  EXPECT_EQ(truncate(path.c_str(), static_cast<off_t>(size)), 0);
  return path;
}

std::string words(const std::vector<uint32_t>& all) {
  return {reinterpret_cast<const char*>(all.data()), all.size() * sizeof all[0]};
}

// Writes an object with a DT_GNU_HASH table at 8 KiB whose Bloom filter has `mib` MiB, a power of
// two.
std::string filter(const opdock_test::TemporaryFolder& folder, const std::string& name,
                   uint32_t mib) {
  const Entries entries = {{DT_GNU_HASH, 8192},
                           {DT_STRTAB, 0x1800},
                           {DT_SYMTAB, 0x1900},
                           {DT_STRSZ, 16},
                           {DT_SYMENT, 24}};
  return object(folder, name, (mib + 1) * kMiB, entries, words({1, 1, mib << 17, 6}));
}

bool has_holes(const std::string& path, uint64_t size) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return FileReader(file.get(), size).next_data(64 << 10) > 64 << 10;
}

class NoProgress : public Progress {
 public:
  void step(std::string_view, double) override {}
  bool cancelled() override { return false; }
};

Survey survey_of(const std::string& path) {
  SurveyRequest request;
  request.paths = {path};
  MachineFacts machine;
  machine.cpu_arch = kMachine == EM_AARCH64 ? "aarch64" : "x86_64";
  machine.elf_machine = kMachine;
  NoProgress progress;
  return survey(request, machine, &progress);
}

// Returns the reason codes of each file of the only package, by file name.
std::map<std::string, std::string> codes_in(const Survey& found) {
  std::map<std::string, std::string> codes;
  for (const SurveyedFile& file : found.packages.at(0).files) {
    std::string& text = codes[file.name];
    for (const Reason& reason : file.reasons) text += std::string(info(reason.code).name) + " ";
  }
  return codes;
}

// Returns how many bytes this process has read so far, or nullopt if the kernel does not count
// them.
std::optional<uint64_t> bytes_read() {
  std::ifstream counters("/proc/self/io");
  std::string name;
  uint64_t value = 0;
  while (counters >> name >> value) {
    if (name == "rchar:") return value;
  }
  return std::nullopt;
}

TEST(Limits, AFileWithoutMemoryForItIsUndecidedAndTheOthersAreJudged) {
  const opdock_test::TemporaryFolder folder;
  filter(folder, "large.so", 16);
  object(folder, "small.so", 64 << 10, {{DT_STRTAB, 0x1800}, {DT_STRSZ, 16}});
  const LittleMemory little(8 * kMiB);
  const Survey found = survey_of(folder.path().string());
  std::map<std::string, std::string> codes = codes_in(found);
  EXPECT_EQ(codes["large.so"], "file-memory ");
  EXPECT_EQ(codes["small.so"].find("file-memory"), std::string::npos) << codes["small.so"];
  ASSERT_EQ(found.packages.at(0).files.size(), 2u);
}

TEST(Limits, TablesInHolesAreDamageAndCostNoMemory) {
  const opdock_test::TemporaryFolder folder;
  if (!has_holes(filter(folder, "filter.so", 512), 513 * kMiB)) {
    GTEST_SKIP() << "the file system of " << folder.path() << " shows no holes";
  }
  const uint64_t size = 1025 * kMiB;
  const Entries rest = {{DT_STRTAB, 0x1800}, {DT_SYMTAB, 0x1900}, {DT_STRSZ, 16}, {DT_SYMENT, 24}};
  const auto with = [&](Entries entries) {
    entries.insert(entries.end(), rest.begin(), rest.end());
    return entries;
  };
  object(folder, "buckets.so", size, with({{DT_GNU_HASH, 8192}}), words({1 << 27, 1, 1, 6}));
  object(folder, "chains.so", size, with({{DT_GNU_HASH, 8192}}), words({1, 1, 1, 6, 0, 0, 1}));
  object(folder, "symbols.so", size, with({{DT_HASH, 8192}}), words({1, 32 << 20}));
  object(folder, "names.so", size,
         {{DT_HASH, 8192},
          {DT_STRTAB, 0x3000},
          {DT_SYMTAB, 0x1900},
          {DT_STRSZ, 1000 * kMiB},
          {DT_SYMENT, 24}},
         words({1, 1, 0, 0}));
  const LittleMemory little(48 * kMiB);
  for (const auto& [name, codes] : codes_in(survey_of(folder.path().string()))) {
    EXPECT_EQ(codes.find("file-memory"), std::string::npos) << name << ": " << codes;
    EXPECT_NE(codes.find("elf-malformed"), std::string::npos) << name << ": " << codes;
  }
}

TEST(Limits, HolesAreNotRead) {
  const opdock_test::TemporaryFolder folder;
  const uint64_t size = 4096 * kMiB;
  const uint64_t relocations = 2048 * kMiB / sizeof(Elf64_Rela) * sizeof(Elf64_Rela);
  const std::string path = object(folder, "x.so", size,
                                  {{DT_STRTAB, 0x3000},
                                   {DT_STRSZ, 16},
                                   {DT_RELA, 0x4000},
                                   {DT_RELASZ, relocations},
                                   {DT_RELAENT, sizeof(Elf64_Rela)}});
  const std::optional<uint64_t> before = bytes_read();
  if (!before || !has_holes(path, size)) GTEST_SKIP() << "holes, or what is read, are not shown";
  survey_of(path);
  EXPECT_LT(*bytes_read() - *before, 512 * kMiB);
}

// Small holes, such as `cp --sparse` makes, are not damage.
TEST(Limits, ATableWithSomeHolesIsHeld) {
  const opdock_test::TemporaryFolder folder;
  const std::string path = folder.write("x", std::string(20 * kMiB, 'x')).string();
  ASSERT_EQ(truncate(path.c_str(), 40 * kMiB), 0);
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const FileReader reader(file.get(), 40 * kMiB);
  EXPECT_TRUE(reader.holds(0, 40 * kMiB));
  EXPECT_TRUE(reader.holds(kMiB, 38 * kMiB));
  EXPECT_TRUE(reader.holds(30 * kMiB, kMiB));  // a small range
  EXPECT_EQ(reader.next_data(kMiB), kMiB);
  EXPECT_EQ(reader.next_data(40 * kMiB), 40 * kMiB);
  if (reader.next_data(30 * kMiB) == 30 * kMiB) GTEST_SKIP() << "the file system shows no holes";
  EXPECT_FALSE(reader.holds(4 * kMiB, 36 * kMiB));
  EXPECT_EQ(reader.next_data(30 * kMiB), 40 * kMiB);
}

TEST(Limits, ReadingStopsWhenTheProgramSaysSo) {
  const opdock_test::TemporaryFolder folder;
  const std::string path = object(folder, "x.so", 24 * kMiB, {{DT_STRTAB, 0}, {DT_STRSZ, 16}},
                                  std::string(20 * kMiB, '\x11'));
  opdock_options options{};
  options.struct_size = sizeof options;
  int32_t asked = 0;
  options.hooks_context = &asked;
  options.cancelled = [](void* context) { return ++*static_cast<int32_t*>(context) > 1 ? 1 : 0; };
  opdock_runtime* runtime = nullptr;
  char error[256] = "";
  ASSERT_EQ(opdock_runtime_create(&options, &runtime, error, sizeof error), OPDOCK_OK) << error;
  char* report = nullptr;
  EXPECT_EQ(opdock_inspect_json(runtime, path.c_str(), &report, error, sizeof error),
            OPDOCK_CANCELLED);
  EXPECT_EQ(asked, 2);
  EXPECT_NE(std::string(error).find("stopped on request"), std::string::npos) << error;
  opdock_free(report);
  opdock_runtime_destroy(runtime);
}

}  // namespace
}  // namespace opdock
