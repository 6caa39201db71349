// SPDX-License-Identifier: Apache-2.0
#include "link/loader_cache.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "base/mutex.h"

namespace opdock {
namespace {

// The layout that glibc has written since 2.1: a head, entries, texts. Offsets count from the head.
constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
constexpr size_t kCacheHeadBytes = 48, kCacheEntryBytes = 24;
// Since 2.33 the head has the offset of a directory of extensions. The extension with the tag 1
// lists names of hwcaps. If an entry's upper word has this bit, the lower word is the index of a
// name.
constexpr uint32_t kExtensionMagic = 0xeaa42174, kHwcapsTag = 1;
constexpr uint32_t kExtensionBit = 0x40000000, kExtensionMask = 0xfffffc00;

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

// Returns the offsets of the names of hwcaps, each a u32; empty if there are none.
std::span<const uint8_t> find_hwcaps(std::span<const uint8_t> bytes, size_t base) {
  const auto part = [&](uint64_t at, uint64_t size) {
    return at > bytes.size() || size > bytes.size() - at
               ? std::span<const uint8_t>()
               : bytes.subspan(static_cast<size_t>(at), static_cast<size_t>(size));
  };
  const uint32_t offset = get_u32(bytes, base + 32);
  const std::span<const uint8_t> head = part(base + uint64_t{offset}, 8);
  if (offset == 0 || head.empty() || get_u32(head, 0) != kExtensionMagic) return {};
  const std::span<const uint8_t> sections =
      part(base + uint64_t{offset} + 8, uint64_t{get_u32(head, 4)} * 16);
  for (size_t at = 0; at + 16 <= sections.size(); at += 16) {
    if (get_u32(sections, at) != kHwcapsTag) continue;
    return part(base + uint64_t{get_u32(sections, at + 8)}, get_u32(sections, at + 12));
  }
  return {};
}

struct KnownCache {
  Mutex mutex;
  std::shared_ptr<const LoaderCache> cache;
  struct stat stamp{};
  uint16_t machine = 0;
};
KnownCache& known_cache = *new KnownCache;

}  // namespace

LoaderCache parse_loader_cache(std::span<const uint8_t> bytes, uint16_t machine) {
  LoaderCache cache;
  const auto found = std::search(bytes.begin(), bytes.end(), kMagic.begin(), kMagic.end());
  const size_t base = static_cast<size_t>(found - bytes.begin());  // an older layout may precede it
  if (bytes.size() < kCacheHeadBytes || base > bytes.size() - kCacheHeadBytes) return cache;
  const uint64_t count = get_u32(bytes, base + kMagic.size());
  if (count > (bytes.size() - base - kCacheHeadBytes) / kCacheEntryBytes) return cache;
  const std::span<const uint8_t> hwcaps = find_hwcaps(bytes, base);
  const uint32_t wanted = machine == EM_AARCH64 ? 0x0a00 : 0x0300;  // ABI bits for 64-bit libraries
  for (uint64_t i = 0; i < count; ++i) {
    const size_t entry = base + kCacheHeadBytes + i * kCacheEntryBytes;
    if ((get_u32(bytes, entry) & 0xff00) != wanted) continue;
    std::string name = get_text(bytes, base + uint64_t{get_u32(bytes, entry + 4)});
    CachedLibrary library{get_text(bytes, base + uint64_t{get_u32(bytes, entry + 8)}), {}};
    const uint32_t number = get_u32(bytes, entry + 16), bits = get_u32(bytes, entry + 20);
    if ((bits & kExtensionMask) == kExtensionBit) {
      if (number >= hwcaps.size() / 4) continue;
      library.hwcaps = get_text(bytes, base + uint64_t{get_u32(hwcaps, number * size_t{4})});
    } else if ((number | bits) != 0) {
      continue;
    }
    if (!name.empty() && !library.path.empty()) cache[std::move(name)].push_back(library);
  }
  return cache;
}

std::shared_ptr<const LoaderCache> read_loader_cache(uint16_t machine) {
  struct stat now{};
  const bool there = ::stat("/etc/ld.so.cache", &now) == 0;
  const auto is_known = [&] {
    return known_cache.cache != nullptr && machine == known_cache.machine &&
           now.st_ino == known_cache.stamp.st_ino &&
           now.st_mtim.tv_sec == known_cache.stamp.st_mtim.tv_sec &&
           now.st_mtim.tv_nsec == known_cache.stamp.st_mtim.tv_nsec;
  };
  {
    const std::lock_guard lock(known_cache.mutex);
    if (is_known()) return known_cache.cache;
  }
  std::vector<uint8_t> bytes;
  const int fd = there ? ::open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC) : -1;
  uint8_t piece[16384];
  constexpr size_t kMax = 64 << 20;
  for (ssize_t got = 0; fd >= 0 && (got = ::read(fd, piece, sizeof piece)) > 0;) {
    bytes.insert(bytes.end(), piece, piece + got);
    if (bytes.size() >= kMax) break;
  }
  if (fd >= 0) ::close(fd);
  auto fresh = std::make_shared<const LoaderCache>(parse_loader_cache(bytes, machine));
  const std::lock_guard lock(known_cache.mutex);
  known_cache.cache = fresh;
  known_cache.stamp = now;
  known_cache.machine = machine;
  return fresh;
}

}  // namespace opdock
