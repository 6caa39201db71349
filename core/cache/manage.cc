// SPDX-License-Identifier: Apache-2.0
#include "cache/manage.h"

#include "cache/store.h"

namespace opdock::cache {

namespace {

Listed listed_of(const Variant& variant, const OpenedEntry& opened) {
  Listed listed{variant, opened.state, opened.problem, "", ""};
  if (opened.entry == nullptr) return listed;
  listed.subject = opened.entry->subject();
  listed.maker = opened.entry->maker().text;
  listed.created = opened.entry->created();
  return listed;
}

}  // namespace

void for_each_entry(
    const Layout& layout, bool check,
    const std::function<bool(const Variant& variant, const OpenedEntry& opened)>& visit) {
  for (const Variant& variant : list_variants(layout)) {
    const OpenedEntry opened = open_entry(variant.path, check);
    if (opened.state == OpenedEntry::kMissing || opened.state == OpenedEntry::kBusy) continue;
    if (!visit(variant, opened)) return;
  }
}

std::vector<Listed> list_entries(const Layout& layout, bool check) {
  std::vector<Listed> all;
  for_each_entry(layout, check, [&](const Variant& variant, const OpenedEntry& opened) {
    all.push_back(listed_of(variant, opened));
    return true;
  });
  return all;
}

std::vector<Listed> verify(const Layout& layout) {
  std::vector<Listed> all;
  for_each_entry(layout, true, [&](const Variant& variant, const OpenedEntry& opened) {
    if (opened.state == OpenedEntry::kDamaged)
      quarantine(layout, variant.path, opened, opened.problem);
    all.push_back(listed_of(variant, opened));
    return true;
  });
  return all;
}

Cleared clear(const Layout& layout) {
  Cleared result;
  // Without locks it is not known what is in use. A time in the far future makes everything count
  // as unused then, so that all of it is removed.
  constexpr int64_t kFarFuture = int64_t{1} << 40;
  for (const Variant& variant : list_variants(layout)) {
    if (!remove_unused(layout, variant, kFarFuture)) {
      ++result.in_use;
      continue;
    }
    ++result.removed;
    result.removed_bytes += variant.bytes;
  }
  for (const char* name : {"failures", "history", "memos", "bad"}) {
    remove_tree(layout.base() + "/" + name);
  }
  evict(layout, UINT64_MAX);  // sweeps leftovers
  return result;
}

}  // namespace opdock::cache
