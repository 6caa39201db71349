// Implements `opdock cache`: lists, clears and verifies entries, and moves them between machines.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cache/entry.h"
#include "cache/evict.h"

namespace opdock::cache {

// Opens the variants one after another, and checks all their files if `check`. Each is closed after
// its visit, because there may be more than this process can hold open, or in memory. Stops when
// visit() returns false.
void for_each_entry(
    const Layout& layout, bool check,
    const std::function<bool(const Variant& variant, const OpenedEntry& opened)>& visit);

struct Listed {
  Variant variant;
  OpenedEntry::State state;
  std::string problem;         // the problem that was found, unless kGood
  std::string subject, maker;  // empty unless kGood, and `created` is 0
  int64_t created = 0;
};
// Lists every variant, and checks all its files if `check`.
std::vector<Listed> list_entries(const Layout& layout, bool check);

// Checks every byte of every variant, and sets aside the damaged ones.
std::vector<Listed> verify(const Layout& layout);

struct Cleared {
  size_t removed = 0, in_use = 0;
  uint64_t removed_bytes = 0;
};
// Removes everything, including newer formats and remembered failures, except entries and build
// folders that a live process uses.
Cleared clear(const Layout& layout);

struct Exported {
  size_t entries = 0;
  uint64_t bytes = 0;                 // size of the file
  std::vector<std::string> left_out;  // paths of entries that are damaged or in a newer format
};
// Writes every good entry into a tar file (POSIX.1-1988 ustar, uncompressed), atomically. Returns
// false and a reason (cache-write) on failure.
bool export_entries(const Layout& layout, const std::string& file, Exported* result,
                    std::vector<Reason>* reasons);

struct Imported {
  size_t entries = 0;
  size_t present = 0;  // existed already, and are kept as they are
};
// Imports what export_entries() wrote. Everything is checked before anything is imported: from a
// file that was cut or changed, or that names anything but entries (cache-archive, cache-newer),
// nothing is imported. Code runs as it is once it is in the cache, so nothing is imported from a
// file with code either unless `trust` is set (cache-untrusted).
bool import_entries(const Layout& layout, const std::string& file, bool trust, Imported* result,
                    std::vector<Reason>* reasons);

}  // namespace opdock::cache
