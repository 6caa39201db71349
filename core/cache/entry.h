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
  uint64_t bytes() const { return size_; }     // on disk
  int64_t used() const { return used_; }       // when it was marked as used, at most an hour ago
  uint64_t device() const { return device_; }  // of the variant's file or folder
  uint64_t inode() const { return inode_; }
  // Marks it as used now, unless that was done within the hour. A read-only cache is no error.
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
  Fd pin_;  // holds a shared lock of the entry file: gc does not take what it cannot lock
};

struct OpenedEntry {
  enum State {
    kGood,
    kMissing,
    kBusy,        // being evicted at this moment
    kDamaged,     // to be set aside
    kNewer,       // to be left alone
    kUnreadable,  // for a reason that says nothing about the entry: no permission, no descriptors
  } state = kMissing;
  std::shared_ptr<StoredEntry> entry;
  std::string problem;             // what was found, unless kGood
  uint64_t device = 0, inode = 0;  // of the variant's file or folder that was looked at
};

// Opens the variant at this path (…/<kind>/<2 hex>/<key>/<maker>), and checks every byte of it: its
// own digest, that it is what its path says, and the digest of each of its files (unless
// check_files is false). What was checked is what is used: blobs are held in memory, not mapped, so
// that nothing that happens to the file can change them or raise SIGBUS.
//
// memos: files whose stamps are those of the last time that all of them were good are not read
// again. NULL: every byte is read.
OpenedEntry open_entry(const std::string& variant, bool check_files = true,
                       const Layout* memos = nullptr);

}  // namespace opdock::cache
