// One published variant, read from disk and checked.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/files.h"
#include "cache/entry_format.h"
#include "cache/layout.h"

namespace opdock::cache {

class StoredEntry : public CacheEntry {
 public:
  const std::string& key() const override { return data_.key; }
  const std::string& kind() const override { return data_.kind; }
  const std::string& subject() const override { return data_.subject; }
  const std::vector<CacheField>& fields() const override { return data_.fields; }
  const CacheMaker& maker() const override { return data_.maker; }
  int64_t created() const override { return data_.created; }
  const std::string& path() const override { return path_; }
  const std::string& folder() const override { return folder_; }
  bool blob(std::string_view name, std::span<const uint8_t>* out) const override;

  const EntryData& data() const { return data_; }
  uint64_t bytes() const { return size_; }  // on disk
  int64_t used() const {
    return used_;
  }  // when it was last marked as used: at most once an
     // hour
  uint64_t device() const { return device_; }  // device of the variant's file or folder
  uint64_t inode() const { return inode_; }
  // Marks the entry as used now, unless that was done within the last hour. A read-only cache is
  // not an error.
  void mark_used();

 private:
  friend struct OpenedEntry open_entry(const std::string& variant, bool check_files,
                                       const Layout* memos);
  bool check_files(const Layout* memos, int* error, std::string* problem) const;
  EntryData data_;
  std::string path_, folder_;
  std::vector<uint8_t> bytes_;
  uint64_t size_ = 0, device_ = 0, inode_ = 0;
  int64_t used_ = 0;
  Fd pin_;  // holds a shared lock on the entry file: gc skips what it cannot lock
};

struct OpenedEntry {
  enum State {
    kGood,
    kMissing,
    kBusy,        // being evicted at this moment
    kDamaged,     // to be set aside
    kNewer,       // to be left alone
    kUnreadable,  // for a reason other than the entry: no permission, no descriptors
  } state = kMissing;
  std::shared_ptr<StoredEntry> entry;
  std::string problem;             // the problem that was found, unless kGood
  uint64_t device = 0, inode = 0;  // identity of the variant's file or folder that was examined
};

// Opens the variant at this path (…/<kind>/<2 hex>/<key>/<maker>), and checks every byte of it: its
// own digest, that it belongs to its path, and the digest of each of its files (unless check_files
// is false). The checked bytes are the ones that are used: blobs are held in memory, not mapped, so
// that nothing that happens to the file can change them or raise SIGBUS.
//
// memos: files are not read again if their stamps are those of the last time when all of them were
// good. NULL: every byte is read.
OpenedEntry open_entry(const std::string& variant, bool check_files = true,
                       const Layout* memos = nullptr);

}  // namespace opdock::cache
