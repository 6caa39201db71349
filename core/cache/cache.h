// The cache of what was compiled and built: content-addressed, shared by processes, ranks and
// machines. docs/cache.md has the layout on disk.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/reason.h"

namespace opdock {

// One input of a request. Long values (sources) are given as to_hex(sha256(…)).
struct CacheField {
  std::string name;  // "source axpy.cc", "arch", "option 3", "abi"
  std::string value;
  bool operator==(const CacheField&) const = default;
};

// What is to be made. Everything that changes the result is a field; nothing else is.
struct CacheRequest {
  std::string kind;     // "kernels", "plugin" or "tuning"
  std::string subject;  // what it is, for people and for finding its history: "axpy for sm_90a"
  std::vector<CacheField> fields;
  // SHA-256, hex, over kind and the fields in order, each with its length before it. The subject
  // is no part of it.
  std::string key() const;
};

// Who made a variant.
struct CacheMaker {
  std::string text;  // "nvrtc 12.9.86", "g++ 12.2.0, nvcc 13.0.88": for people
  std::string id;    // hex: distinguishes compilers that call themselves the same
};

struct CacheBlob {
  std::string name;  // "image", "names"
  std::string bytes;
};

// A published variant, open and held: nothing evicts it while this lives, in any process. Of kind
// "kernels" the blobs are in memory; of kind "plugin" `folder` has the files. All bytes were
// checked: those of files now, or since they last changed (cache/stamps.h). Of kind "tuning" it is
// what was measured, which a later measurement replaces.
class CacheEntry {
 public:
  virtual ~CacheEntry() = default;
  virtual const std::string& key() const = 0;
  virtual const std::string& kind() const = 0;
  virtual const std::string& subject() const = 0;
  virtual const std::vector<CacheField>& fields() const = 0;
  virtual const CacheMaker& maker() const = 0;
  virtual int64_t created() const = 0;            // seconds since the epoch, by its maker's clock
  virtual const std::string& path() const = 0;    // of the entry file
  virtual const std::string& folder() const = 0;  // of kind "plugin"; else empty
  // The blob's bytes, valid while this lives; empty and false if there is none of that name.
  virtual bool blob(std::string_view name, std::span<const uint8_t>* out) const = 0;
};

// Kernel-held, close-on-exec: dies with its holder. Released on destruction.
class CacheLock {
 public:
  virtual ~CacheLock() = default;
  // Whether it is the caller's turn to make what the lock is for; also where a file system has no
  // locks, and no other can be kept out. False: nothing is held, as another's result or failure has
  // come. Look with find() and failure(); if they do not help, lock again, as all do that waited.
  virtual bool is_turn() const { return true; }
};

struct CacheOptions {
  std::string folder;  // absolute; empty: there is no cache, everything misses
  // Absolute: where memos are kept instead if this process cannot write `folder`. It is made if
  // need be. Empty: then there are none.
  std::string memo_folder;
  uint64_t max_bytes = 10ull << 30;  // OPDOCK_CACHE_MAX_BYTES; least recently used go first
};

// The options that OPDOCK_CACHE_DIR, XDG_CACHE_HOME, HOME and OPDOCK_CACHE_MAX_BYTES make. What is
// wrong with them is appended: a value that cannot be (cache-setting), or why there is no folder
// (cache-unusable); under AT_SECURE there is none. Memos of a cache that OPDOCK_CACHE_DIR names go
// to the user's own where it cannot be written.
CacheOptions cache_options_from_environment(std::vector<Reason>* reasons);

// Thread-safe. Never throws for what the file system does: a defect becomes a reason and a miss.
class Cache {
 public:
  // Looks at the folder (made on first writing). A folder that cannot be used (foreign owner,
  // writable by others, below /tmp's like) gives a cache that misses, and appends its reason.
  static std::unique_ptr<Cache> open(const CacheOptions& options, std::vector<Reason>* reasons);
  virtual ~Cache() = default;

  // The variants of a request, the one made by `preferred` first, then newest first; damaged ones
  // are set aside (never returned, never blocking) with a reason. Marks as used.
  virtual std::vector<std::shared_ptr<CacheEntry>> find(const CacheRequest& request,
                                                        const CacheMaker* preferred,
                                                        std::vector<Reason>* reasons) = 0;

  // Waits until no other thread, process or host makes this request's variant, or until one has
  // made it or its failure is remembered (CacheLock::is_turn). After 2 s of waiting progress hears
  // for whom (pid, host). NULL and a reason: cancelled, or it is this thread that holds it
  // (within-itself: a hook of the work asks for what it makes), or the file system has no locks and
  // no folder can be written (then the caller may make it without publishing). After acquiring,
  // look again with find().
  virtual std::unique_ptr<CacheLock> lock(const CacheRequest& request, const CacheMaker& maker,
                                          Progress* progress, std::vector<Reason>* reasons) = 0;

  // Publishes, atomically and durably: temp, fsync, rename, fsync of the folder. If another has
  // published the same variant meanwhile, that one is returned. NULL and a reason (no space, read
  // only, …) leaves nothing behind.
  virtual std::shared_ptr<CacheEntry> publish_blobs(const CacheRequest& request,
                                                    const CacheMaker& maker,
                                                    const std::vector<CacheBlob>& blobs,
                                                    std::vector<Reason>* reasons) = 0;
  // Publishes blobs in the place of those that the variant had, or, if there are none, removes it;
  // readers find the one or the other. The lock of the request is held. False and a reason.
  virtual bool replace_blobs(const CacheRequest& request, const CacheMaker& maker,
                             const std::vector<CacheBlob>& blobs, std::vector<Reason>* reasons);
  // A folder to build in, on the cache's file system, private to this process; removed by
  // discard_folder or by a later gc when its owner is dead.
  virtual std::optional<std::string> make_folder(std::vector<Reason>* reasons) = 0;
  virtual void discard_folder(const std::string& folder) = 0;
  // Takes `files` (names relative to folder, which make_folder gave) over as the variant's, and
  // removes whatever else is in the folder. On success the folder is no more; on failure it stays,
  // with the files, to be used without the cache or discarded.
  virtual std::shared_ptr<CacheEntry> publish_folder(const CacheRequest& request,
                                                     const CacheMaker& maker,
                                                     const std::string& folder,
                                                     const std::vector<std::string>& files,
                                                     std::vector<Reason>* reasons) = 0;

  // A failure, remembered for request and maker until an input changes: found by lookup, forgotten
  // by forget_failure or `opdock cache clear`.
  virtual void remember_failure(const CacheRequest& request, const CacheMaker& maker,
                                const std::vector<Reason>& why, std::string_view log) = 0;
  virtual std::optional<std::vector<Reason>> failure(const CacheRequest& request,
                                                     const CacheMaker& maker,
                                                     std::string* log_path) = 0;
  virtual void forget_failure(const CacheRequest& request) = 0;

  // Moves a variant that turned out unusable (it does not load) out of the way.
  virtual void set_aside(const CacheEntry& entry, const Reason& why) = 0;

  // The newest entry of the same kind and subject with another key, for telling what changed: the
  // fields that differ, as "source axpy.cc changed", "option 3: found …, was …".
  virtual std::vector<std::string> what_changed(const CacheRequest& request) = 0;

  // A text that this machine keeps under a name, to spare itself work; it may be lost at any time.
  // recall: nothing if there is none, or if it is damaged. remember: best effort, and only in a
  // cache that is there already, or in CacheOptions::memo_folder.
  virtual std::optional<std::string> recall(const std::string& name) const;
  virtual void remember(const std::string& name, const std::string& text);

  virtual const std::string& folder() const = 0;  // empty: none
};

}  // namespace opdock
