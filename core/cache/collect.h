// Keeping the cache within its limit, and clearing away what died.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/layout.h"

namespace opdock::cache {

// A variant as gc sees it: by its folder names and file times alone.
struct Variant {
  std::string kind, key, maker;  // maker: its file name
  std::string path;              // the entry file, or the folder
  uint64_t bytes = 0;
  int64_t used = 0;  // modification time of the entry file
};
std::vector<Variant> list_variants(const Layout& layout);

struct Collected {
  bool busy = false;  // another process was at it: nothing was done
  size_t removed = 0;
  uint64_t removed_bytes = 0;
  uint64_t kept_bytes = 0;  // of what is left, all kinds
  size_t in_use = 0;        // wanted to remove, but a live process uses it
  size_t swept = 0;         // temporary files of dead processes, old locks, records and bad entries
};

// Removes the least recently used entries until at most max_bytes are left, except what a live
// process holds, what was used within the last ten minutes, and what is in a newer format; and
// sweeps. Ages are by the file system's own clock.
Collected collect(const Layout& layout, uint64_t max_bytes);

// collect(), if by a running estimate the limit is exceeded or the last time was hours ago.
// published: bytes that were just added.
void collect_if_due(const Layout& layout, uint64_t max_bytes, uint64_t published);

// Removes a variant, and the folders above it that it leaves empty, unless a live process uses it:
// false then. On a file system without locks, one
// that was used within a day (now: by the file system's clock) counts as in use.
bool remove_unused(const Layout& layout, const Variant& variant, int64_t now);

// True if the entry file has the head of a format that this Opdock does not know.
bool is_newer_format(const std::string& entry_file);

}  // namespace opdock::cache
