// SPDX-License-Identifier: Apache-2.0
#include "cache/manage.h"

#include <unistd.h>

#include "cache/store.h"

namespace opdock::cache {

std::vector<Listed> list_entries(const Layout& layout, bool check) {
  std::vector<Listed> all;
  for (Variant& variant : list_variants(layout)) {
    OpenedEntry opened = open_entry(variant.path, check);
    if (opened.state == OpenedEntry::kMissing || opened.state == OpenedEntry::kBusy) continue;
    all.push_back({std::move(variant), std::move(opened)});
  }
  return all;
}

std::vector<Listed> verify(const Layout& layout) {
  std::vector<Listed> all = list_entries(layout, true);
  for (const Listed& listed : all) {
    if (listed.opened.state != OpenedEntry::kDamaged) continue;
    move_aside(layout, listed.variant.path, listed.opened, listed.opened.problem);
  }
  return all;
}

Cleared clear(const Layout& layout) {
  Cleared result;
  // Where there are no locks, nothing tells what is in use: what was asked for is done.
  constexpr int64_t kFarFuture = int64_t{1} << 40;
  for (const Variant& variant : list_variants(layout)) {
    if (!remove_unused(layout, variant, kFarFuture)) {
      ++result.in_use;
      continue;
    }
    ++result.removed;
    result.removed_bytes += variant.bytes;
    rmdir(parent_of(variant.path).c_str());
    rmdir(parent_of(parent_of(variant.path)).c_str());
  }
  for (const char* name : {"failures", "history", "memos", "bad"}) {
    remove_tree(layout.base() + "/" + name);
  }
  collect(layout, UINT64_MAX);  // sweeps
  return result;
}

}  // namespace opdock::cache
