// SPDX-License-Identifier: Apache-2.0
#include "note/loader_cache.h"

#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace opdock {
namespace {

// The layout that glibc has written since 2.1: a head, entries, texts; offsets from the head.
constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
constexpr size_t kCacheHeadBytes = 48, kCacheEntryBytes = 24;

uint32_t get_u32(std::span<const uint8_t> bytes, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::string get_text(std::span<const uint8_t> bytes, uint64_t at) {
  if (at >= bytes.size()) return {};
  const auto begin = bytes.begin() + static_cast<ptrdiff_t>(at);
  return {begin, std::find(begin, bytes.end(), 0)};
}

}  // namespace

LoaderCache parse_loader_cache(std::span<const uint8_t> bytes, uint16_t machine) {
  LoaderCache cache;
  const auto found = std::search(bytes.begin(), bytes.end(), kMagic.begin(), kMagic.end());
  const size_t base = static_cast<size_t>(found - bytes.begin());  // an older part may precede it
  if (bytes.size() < kCacheHeadBytes || base > bytes.size() - kCacheHeadBytes) return cache;
  const uint64_t count = get_u32(bytes, base + kMagic.size());
  if (count > (bytes.size() - base - kCacheHeadBytes) / kCacheEntryBytes) return cache;
  const uint32_t wanted = machine == EM_AARCH64 ? 0x0a00 : 0x0300;  // ABI bits for 64-bit libraries
  for (uint64_t i = 0; i < count; ++i) {
    const size_t entry = base + kCacheHeadBytes + i * kCacheEntryBytes;
    if ((get_u32(bytes, entry) & 0xff00) != wanted) continue;
    std::string name = get_text(bytes, base + uint64_t{get_u32(bytes, entry + 4)});
    std::string path = get_text(bytes, base + uint64_t{get_u32(bytes, entry + 8)});
    if (!name.empty() && !path.empty()) cache[std::move(name)].push_back(std::move(path));
  }
  return cache;
}

}  // namespace opdock
