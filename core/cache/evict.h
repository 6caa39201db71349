// Keeps the cache within its size limit, and removes the leftovers of dead processes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/layout.h"

namespace opdock::cache {

// A variant as the eviction sees it: only by its folder names and file times.
struct Variant {
  std::string kind, key, maker;  // maker: its file name
  std::string path;              // the entry file, or the folder
  uint64_t bytes = 0;
  int64_t used = 0;  // modification time of the entry file
};
std::vector<Variant> list_variants(const Layout& layout);

struct Evicted {
  bool busy = false;  // another process was evicting: nothing was done
  size_t removed = 0;
  uint64_t removed_bytes = 0;
  uint64_t kept_bytes = 0;  // size of all entries that are left, of all kinds
  size_t in_use = 0;        // entries that were to be removed, but that a live process uses
  size_t swept = 0;         // temporary files of dead processes, old locks, records and bad entries
};

// Removes the least recently used entries until at most max_bytes are left, except entries that a
// live process holds, that were used within the last ten minutes, or that are in a newer format.
// Then sweeps leftovers. Ages are measured by the file system's own clock.
Evicted evict(const Layout& layout, uint64_t max_bytes);

// Calls evict() if a running estimate exceeds the limit or the last eviction was hours ago.
// published: bytes that were just added.
void evict_if_due(const Layout& layout, uint64_t max_bytes, uint64_t published);

// Removes a variant, and the folders above it that become empty. Returns false if a live process
// uses it. On a file system without locks, a variant that was used within a day (now: by the file
// system's clock) counts as in use.
bool remove_unused(const Layout& layout, const Variant& variant, int64_t now);

// Returns whether the entry file has the head of a format that this Opdock does not know.
bool is_newer_format(const std::string& entry_file);

}  // namespace opdock::cache
