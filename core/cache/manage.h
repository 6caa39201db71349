// What `opdock cache` does: listing, clearing and verifying, and moving entries between machines.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cache/collect.h"
#include "cache/entry.h"

namespace opdock::cache {

// Opens the variants one after another, with all their files checked if `check`. Each is closed
// after its visit: they may be more than this process can hold open, or in memory. Ends where
// visit() is false.
void for_each_entry(
    const Layout& layout, bool check,
    const std::function<bool(const Variant& variant, const OpenedEntry& opened)>& visit);

struct Listed {
  Variant variant;
  OpenedEntry::State state;
  std::string problem;         // what was found, unless kGood
  std::string subject, maker;  // empty unless kGood, as `created` is 0
  int64_t created = 0;
};
// Every variant; with all its files checked if `check`.
std::vector<Listed> list_entries(const Layout& layout, bool check);

// Checks every byte of everything, and sets aside what is damaged.
std::vector<Listed> verify(const Layout& layout);

struct Cleared {
  size_t removed = 0, in_use = 0;
  uint64_t removed_bytes = 0;
};
// Removes everything, newer formats and remembered failures too, except entries and build folders
// that a live process uses.
Cleared clear(const Layout& layout);

struct Exported {
  size_t entries = 0;
  uint64_t bytes = 0;                 // of the file
  std::vector<std::string> left_out;  // paths of entries that are damaged or in a newer format
};
// Writes every good entry into a tar file (POSIX.1-1988 ustar, uncompressed), atomically. False and
// a reason (cache-write).
bool export_entries(const Layout& layout, const std::string& file, Exported* result,
                    std::vector<Reason>* reasons);

struct Imported {
  size_t entries = 0;
  size_t present = 0;  // were there already, and stay as they are
};
// Takes over what export wrote. Everything is checked before anything is taken over: on a file that
// was cut, changed, or names anything but entries (cache-archive, cache-newer), nothing is. Nor is
// it where entries have code, which runs as it is once it is in the cache, unless `trust`
// (cache-untrusted).
bool import_entries(const Layout& layout, const std::string& file, bool trust, Imported* result,
                    std::vector<Reason>* reasons);

}  // namespace opdock::cache
