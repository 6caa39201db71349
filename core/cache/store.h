// Implements the cache on disk.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cache/cache.h"
#include "cache/entry.h"
#include "cache/layout.h"
#include "cache/locks.h"

namespace opdock::cache {

void add_reason(std::vector<Reason>* reasons, Code code, std::string found, std::string wanted);

// The outcome of quarantine().
enum class QuarantineResult { kMoved, kGone, kFailed };

// Moves a damaged or useless variant to the bad folder, unless another has replaced it meanwhile:
// `opened` identifies the one that was examined.
QuarantineResult quarantine(const Layout& layout, const std::string& variant,
                            const OpenedEntry& opened, const std::string& why);

// Adds the reason against a variant that was opened and exists, but is not good. A damaged one is
// set aside.
void report_unfit(const Layout& layout, const std::string& variant, const OpenedEntry& opened,
                  std::vector<Reason>* reasons);

class Store final : public Cache {
 public:
  // root: checked already; empty: a cache that misses everything, for the reason `unusable`.
  // memo_root: where memos go; empty: they go below root.
  Store(std::string root, uint64_t max_bytes, Reason unusable, std::string memo_root = {});
  ~Store() override;

  std::vector<std::shared_ptr<CacheEntry>> find(const CacheRequest& request,
                                                const CacheMaker* preferred,
                                                std::vector<Reason>* reasons) override;
  std::unique_ptr<CacheLock> lock(const CacheRequest& request, const CacheMaker& maker,
                                  Progress* progress, std::vector<Reason>* reasons) override;
  std::shared_ptr<CacheEntry> publish_blobs(const CacheRequest& request, const CacheMaker& maker,
                                            const std::vector<CacheBlob>& blobs,
                                            std::vector<Reason>* reasons) override;
  bool replace_blobs(const CacheRequest& request, const CacheMaker& maker,
                     const std::vector<CacheBlob>& blobs, std::vector<Reason>* reasons) override;
  std::optional<std::string> make_folder(std::vector<Reason>* reasons) override;
  void discard_folder(const std::string& folder) override;
  std::shared_ptr<CacheEntry> publish_folder(const CacheRequest& request, const CacheMaker& maker,
                                             const std::string& folder,
                                             const std::vector<std::string>& files,
                                             std::vector<Reason>* reasons) override;
  void remember_failure(const CacheRequest& request, const CacheMaker& maker,
                        const std::vector<Reason>& why, std::string_view log) override;
  std::optional<std::vector<Reason>> failure(const CacheRequest& request, const CacheMaker& maker,
                                             std::string* log_path) override;
  void forget_failure(const CacheRequest& request) override;
  void quarantine(const CacheEntry& entry, const Reason& why) override;
  std::vector<std::string> what_changed(const CacheRequest& request) override;
  std::optional<std::string> recall(const std::string& name) const override;
  void remember(const std::string& name, const std::string& text) override;
  const std::string& folder() const override { return layout_.root; }

 private:
  bool is_usable(std::vector<Reason>* reasons) const;
  // Makes the root, its CACHEDIR.TAG and `folder`; *changed as in make_folders(). Returns 0 or
  // errno.
  int prepare(const std::string& folder, std::vector<std::string>* changed = nullptr);
  // Moves `temp`, a file or folder, into the variant's place, and syncs that place's folder and the
  // folders in `changed`. Returns the entry that is there afterwards.
  std::shared_ptr<CacheEntry> put_in_place(const std::string& temp, const std::string& variant,
                                           std::vector<std::string> changed,
                                           std::vector<Reason>* reasons);
  void after_publishing(const StoredEntry& entry);

  const Layout layout_;
  const uint64_t max_bytes_;
  const Reason unusable_;
  Mutex mutex_;  // guards the members below
  struct Folder {
    pid_t maker;  // a forked child must not remove its parent's folder
    std::unique_ptr<LockFile> lock;
  };
  std::map<std::string, Folder> folders_;  // made by make_folder
};

// Makes `folder`, in the cache at `root`, and writes CACHEDIR.TAG if that began the cache; *changed
// as in make_folders(). Returns 0 or errno.
int prepare_folder(const std::string& root, const std::string& folder,
                   std::vector<std::string>* changed = nullptr);
// Adds to the history what was made for a subject. Best effort.
void record_history(const Layout& layout, const EntryData& data);
// Forgets the failure of a variant that has now been made. Best effort.
void forget_failure_of(const Layout& layout, const std::string& key, const CacheMaker& maker);
// Returns the metadata of an entry that `maker` makes now for `request`.
EntryData entry_data(const CacheRequest& request, const CacheMaker& maker);
// Replaces a small file that may be lost or found damaged: atomically, but not durably. Returns 0
// or errno.
int replace_file(const Layout& layout, const std::string& path, std::string_view bytes);

}  // namespace opdock::cache
