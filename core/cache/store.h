// The cache on disk.
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

// What setting aside did.
enum class Aside { kMoved, kGone, kFailed };

// Moves a variant that is damaged or useless to the bad folder, unless another has replaced it
// meanwhile: `opened` says which one was looked at.
Aside move_aside(const Layout& layout, const std::string& variant, const OpenedEntry& opened,
                 const std::string& why);

// What speaks against a variant that was opened and is there, but is not good; one that is damaged
// is set aside.
void report_unfit(const Layout& layout, const std::string& variant, const OpenedEntry& opened,
                  std::vector<Reason>* reasons);

class Store final : public Cache {
 public:
  // root: checked already; empty: a cache that misses everything, for the reason given.
  // memo_root: where memos go instead; empty: with the rest.
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
  void set_aside(const CacheEntry& entry, const Reason& why) override;
  std::vector<std::string> what_changed(const CacheRequest& request) override;
  std::optional<std::string> recall(const std::string& name) const override;
  void remember(const std::string& name, const std::string& text) override;
  const std::string& folder() const override { return layout_.root; }

 private:
  bool is_usable(std::vector<Reason>* reasons) const;
  // Makes the root, its marks and `folder`; *changed as make_folders. errno.
  int prepare(const std::string& folder, std::vector<std::string>* changed = nullptr);
  // Puts `temp`, a file or folder, in the variant's place and syncs that and the folders in
  // `changed`. Returns what stands there afterwards.
  std::shared_ptr<CacheEntry> put_in_place(const std::string& temp, const std::string& variant,
                                           std::vector<std::string> changed,
                                           std::vector<Reason>* reasons);
  void after_publishing(const StoredEntry& entry);

  const Layout layout_;
  const uint64_t max_bytes_;
  const Reason unusable_;
  Mutex mutex_;  // of what follows
  struct Folder {
    pid_t maker;  // a forked child must not remove its parent's
    std::unique_ptr<LockFile> lock;
  };
  std::map<std::string, Folder> folders_;  // made by make_folder
};

// Makes `folder`, of the cache at `root`, and marks a cache that begins with it; *changed as
// make_folders. errno.
int prepare_folder(const std::string& root, const std::string& folder,
                   std::vector<std::string>* changed = nullptr);
// Puts into the history what was made for a subject. Best effort.
void record_history(const Layout& layout, const EntryData& data);
// What was made cannot have failed. Best effort.
void forget_failure_of(const Layout& layout, const std::string& key, const CacheMaker& maker);
// What an entry says of what it was made for, now, by `maker`.
EntryData entry_data(const CacheRequest& request, const CacheMaker& maker);
// Replaces a small file that may be lost or found damaged: atomically, not durably.
int replace_file(const Layout& layout, const std::string& path, std::string_view bytes);

}  // namespace opdock::cache
