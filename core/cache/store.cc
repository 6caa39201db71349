// Opens the store, finds entries, and sets unusable ones aside.
// SPDX-License-Identifier: Apache-2.0
#include "cache/store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "fmt/format.h"

namespace opdock::cache {

void add_reason(std::vector<Reason>* reasons, Code code, std::string found, std::string wanted) {
  if (reasons != nullptr) {
    reasons->push_back(make_reason(code, std::move(found), std::move(wanted)));
  }
}

QuarantineResult quarantine(const Layout& layout, const std::string& variant,
                            const OpenedEntry& opened, const std::string& why) {
  struct stat status{};
  const auto is_the_one = [&](const std::string& path) {
    return lstat(path.c_str(), &status) == 0 && status.st_ino == opened.inode &&
           status.st_dev == opened.device;
  };
  if (!is_the_one(variant)) return QuarantineResult::kGone;
  if (make_folders(layout.bad()) != 0) return QuarantineResult::kFailed;
  const std::string to = layout.bad() + "/" + unique_name();
  if (rename(variant.c_str(), to.c_str()) != 0) {
    return errno == ENOENT ? QuarantineResult::kGone : QuarantineResult::kFailed;
  }
  if (!is_the_one(to)) {  // a good one was published in between: move it back
    rename_new(to, variant);
    return QuarantineResult::kGone;
  }
  Fd note;
  if (open_file(to + ".why", O_WRONLY | O_CREAT | O_EXCL, 0600, &note) == 0) {
    write_all(note.get(), variant + "\n" + why + "\n");
  }
  return QuarantineResult::kMoved;
}

void report_unfit(const Layout& layout, const std::string& variant, const OpenedEntry& opened,
                  std::vector<Reason>* reasons) {
  switch (opened.state) {
    case OpenedEntry::kGood:
    case OpenedEntry::kMissing:
    case OpenedEntry::kBusy:
      break;
    case OpenedEntry::kDamaged:
      quarantine(layout, variant, opened, opened.problem);
      add_reason(reasons, Code::kCacheDamaged, variant + ": " + opened.problem,
                 "the entry as it was written");
      break;
    case OpenedEntry::kNewer:
      add_reason(reasons, Code::kCacheNewer, variant + " in " + opened.problem,
                 fmt::format("format {}", kEntryFormat));
      break;
    case OpenedEntry::kUnreadable:
      add_reason(reasons, Code::kCacheUnusable, variant + ": " + opened.problem,
                 "an entry that can be read");
      break;
  }
}

Store::Store(std::string root, uint64_t max_bytes, Reason unusable, std::string memo_root)
    : layout_{std::move(root), std::move(memo_root)},
      max_bytes_(max_bytes),
      unusable_(std::move(unusable)) {}

Store::~Store() {
  std::vector<std::string> left;
  for (const auto& [folder, lock] : folders_) left.push_back(folder);
  for (const std::string& folder : left) discard_folder(folder);
}

bool Store::is_usable(std::vector<Reason>* reasons) const {
  if (!layout_.root.empty()) return true;
  if (reasons != nullptr) reasons->push_back(unusable_);
  return false;
}

std::vector<std::shared_ptr<CacheEntry>> Store::find(const CacheRequest& request,
                                                     const CacheMaker* preferred,
                                                     std::vector<Reason>* reasons) {
  std::vector<std::shared_ptr<StoredEntry>> found;
  if (layout_.root.empty()) return {};
  const std::string folder = layout_.variants(request.kind, request.key());
  std::vector<std::string> names;
  const int error = list_folder(folder, &names);
  if (error != 0 && error != ENOENT) {
    add_reason(reasons, Code::kCacheUnusable, folder + ": " + error_text(error),
               "a folder that can be read");
  }
  for (const std::string& name : names) {
    if (!is_hex(name, 8, 64)) continue;  // not a variant of this layout
    const std::string variant = folder + "/" + name;
    const OpenedEntry opened = open_entry(variant, true, &layout_);
    if (opened.state == OpenedEntry::kGood) found.push_back(opened.entry);
    report_unfit(layout_, variant, opened, reasons);
  }
  const std::string first = preferred == nullptr ? std::string() : maker_name(*preferred);
  std::stable_sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
    const bool a_first = maker_name(a->maker()) == first, b_first = maker_name(b->maker()) == first;
    return a_first != b_first ? a_first : a->created() > b->created();
  });
  for (const auto& entry : found) entry->mark_used();
  return {found.begin(), found.end()};
}

void Store::quarantine(const CacheEntry& entry, const Reason& why) {
  const auto* stored = dynamic_cast<const StoredEntry*>(&entry);
  if (layout_.root.empty() || stored == nullptr) return;
  OpenedEntry opened;
  opened.device = stored->device();
  opened.inode = stored->inode();
  cache::quarantine(layout_, entry.folder().empty() ? entry.path() : entry.folder(), opened,
                    to_text(why));
}

int replace_file(const Layout& layout, const std::string& path, std::string_view bytes) {
  if (const int error = make_folders(layout.temp())) return error;
  if (const int error = make_folders(parent_of(path))) return error;
  const std::string temp = layout.temp() + "/" + unique_name();
  Fd file;
  int error = open_file(temp, O_WRONLY | O_CREAT | O_EXCL, 0600, &file);
  if (error == 0) error = write_all(file.get(), bytes);
  if (error == 0 && rename(temp.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) unlink(temp.c_str());
  return error;
}

EntryData entry_data(const CacheRequest& request, const CacheMaker& maker) {
  EntryData data;
  data.kind = request.kind;
  data.key = request.key();
  data.subject = request.subject;
  data.fields = request.fields;
  data.maker = maker;
  data.created = now_seconds();
  return data;
}

}  // namespace opdock::cache
