// /etc/ld.so.cache: where ldconfig says the system's libraries are.
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
  std::string hwcaps;  // the subfolder of glibc-hwcaps that it is for: "x86-64-v3"; empty: none
};

// Library name to files, in the cache's order; entries for other architectures than `machine`
// (EM_…), and for the processor features that glibc asked for before 2.33, are left out. Damaged or
// missing: empty.
using LoaderCache = std::unordered_map<std::string, std::vector<CachedLibrary>>;
LoaderCache parse_loader_cache(std::span<const uint8_t> bytes, uint16_t machine);

// This machine's; read anew where the file has changed. Never NULL. Thread-safe.
std::shared_ptr<const LoaderCache> read_loader_cache(uint16_t machine);

}  // namespace opdock
