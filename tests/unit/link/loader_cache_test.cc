// Tests reading /etc/ld.so.cache, as ldconfig writes it and damaged.
// SPDX-License-Identifier: Apache-2.0
#include "link/loader_cache.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <tuple>

#include "support/elf_builder.h"

namespace opdock {
namespace {

using opdock_test::Bytes;
using Texts = std::vector<std::string>;

Texts paths_of(const LoaderCache& cache, const std::string& name) {
  Texts paths;
  for (const CachedLibrary& library : cache.at(name)) {
    paths.push_back(library.hwcaps + (library.hwcaps.empty() ? "" : ":") + library.path);
  }
  return paths;
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
  EXPECT_EQ(paths_of(parse_loader_cache(b.data, 62), "libx.so"),
            (Texts{"/64/libx.so", "/second/libx.so"}));
  EXPECT_EQ(paths_of(parse_loader_cache(b.data, 183), "libx.so"), Texts{"/arm/libx.so"});
  Bytes older("ld.so-1.7.0");
  older.u8(63, 0);
  older.add(b);
  EXPECT_EQ(parse_loader_cache(older.data, 62).size(), 1u);
}

// Adds an extension directory after the texts, which names glibc-hwcaps' subfolders.
Bytes loader_cache_with_hwcaps() {
  Bytes b = loader_cache({{0x303, "libx.so", "/v3/libx.so"},
                          {0x303, "libx.so", "/v9/libx.so"},
                          {0x303, "libx.so", "/old/libx.so"},
                          {0x303, "libx.so", "/libx.so"}});
  const auto hwcap = [&](size_t entry, uint32_t low, uint32_t high) {
    b.u32(48 + 24 * entry + 16, low).u32(48 + 24 * entry + 20, high);
  };
  hwcap(0, 1, 0x40000000);  // uses the second name
  hwcap(1, 9, 0x40000000);  // there is no such name
  hwcap(2, 4, 0);           // a hardware feature, as before glibc 2.33
  const size_t v2 = b.size();
  b.text(v2, std::string("x86-64-v2") + '\0');
  const size_t v3 = b.size();
  b.text(v3, std::string("x86-64-v3") + '\0');
  const size_t names = b.size();
  b.u32(names, v2).u32(names + 4, v3);
  const size_t at = b.size();
  b.u32(32, at).u32(at, 0xeaa42174).u32(at + 4, 2);
  // the program that wrote the file
  b.u32(at + 8, 0).u32(at + 12, 0).u32(at + 16, v2).u32(at + 20, 4);
  b.u32(at + 24, 1).u32(at + 28, 0).u32(at + 32, names).u32(at + 36, 8);
  return b;
}

TEST(LoaderCache, NamesTheProcessorsThatLibrariesAreFor) {
  const Bytes b = loader_cache_with_hwcaps();
  EXPECT_EQ(paths_of(parse_loader_cache(b.data, 62), "libx.so"),
            (Texts{"x86-64-v3:/v3/libx.so", "/libx.so"}));
}

// Memory that ends at an unreadable page, so that a read beyond it ends the program.
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
  static constexpr size_t kPage = 65536;  // a multiple of the page size
  uint8_t* pages_;
};

TEST(LoaderCache, SurvivesDamage) {
  const Bytes good = loader_cache_with_hwcaps();
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
          for (const CachedLibrary& library : paths) {
            EXPECT_NE(text.find(library.path), text.npos) << at;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace opdock
