// Parses /etc/ld.so.cache, in which ldconfig lists the system's libraries.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace opdock {

struct CachedLibrary {
  std::string path;
  std::string hwcaps;  // its subfolder of glibc-hwcaps, such as "x86-64-v3"; empty: none
};

// Maps a library's name to its files, in the order of the cache. Leaves out entries for other
// architectures than `machine` (EM_…) and for processor features, which glibc used before 2.33.
// Empty if the cache is missing or damaged.
using LoaderCache = std::unordered_map<std::string, std::vector<CachedLibrary>>;
LoaderCache parse_loader_cache(std::span<const uint8_t> bytes, uint16_t machine);

// Returns the cache of this machine, which is read again when the file has changed. Never NULL.
// Thread-safe.
std::shared_ptr<const LoaderCache> read_loader_cache(uint16_t machine);

}  // namespace opdock
