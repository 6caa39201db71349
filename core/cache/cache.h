// The cache of compiled and built results: content-addressed, shared by processes, ranks and
// machines. docs/reference/cache.md has the layout on disk.
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

// Describes what is to be made. Everything that changes the result is a field, and nothing else is.
struct CacheRequest {
  std::string kind;     // "kernels", "plugin" or "tuning"
  std::string subject;  // a name for people and for finding its history: "axpy for sm_90a"
  std::vector<CacheField> fields;
  // Returns the SHA-256, in hex, over kind and the fields in order, each with its length before it.
  // The subject is not part of it.
  std::string key() const;
};

// The compilers that made a variant.
struct CacheMaker {
  std::string text;  // "nvrtc 12.9.86", "g++ 12.2.0, nvcc 13.0.88": for people
  std::string id;    // hex: distinguishes compilers that call themselves the same
};

struct CacheBlob {
  std::string name;  // "image", "names"
  std::string bytes;
};

// A published variant, open and held: no process evicts it while this object lives. For kind
// "kernels" the blobs are in memory; for kind "plugin" `folder` has the files. All bytes have been
// checked: those of files now, or since they last changed (cache/stamps.h). For kind "tuning" the
// entry is what was measured, and a later measurement replaces it.
class CacheEntry {
 public:
  virtual ~CacheEntry() = default;
  virtual const std::string& key() const = 0;
  virtual const std::string& kind() const = 0;
  virtual const std::string& subject() const = 0;
  virtual const std::vector<CacheField>& fields() const = 0;
  virtual const CacheMaker& maker() const = 0;
  virtual int64_t created() const = 0;            // seconds since the epoch, by its maker's clock
  virtual const std::string& path() const = 0;    // path of the entry file
  virtual const std::string& folder() const = 0;  // for kind "plugin"; else empty
  // Gets the blob's bytes, valid while this object lives. Returns false and empty bytes if there is
  // no blob of that name.
  virtual bool blob(std::string_view name, std::span<const uint8_t>* out) const = 0;
};

// A lock that the kernel holds (close-on-exec), so that it ends with the process that took it.
// Released on destruction.
class CacheLock {
 public:
  virtual ~CacheLock() = default;
  // Returns whether the caller may now make what the lock is for; true also on a file system
  // without locks, where no other process can be kept out. False: nothing is held, because
  // another's result or failure has appeared. Look for it with find() and failure(); if they do not
  // help, lock again, as all do that waited.
  virtual bool is_turn() const { return true; }
};

struct CacheOptions {
  std::string folder;  // absolute; empty: there is no cache, everything misses
  // Absolute: where memos are kept if this process cannot write `folder`. Created when needed.
  // Empty: there are no memos then.
  std::string memo_folder;
  uint64_t max_bytes = 10ull << 30;  // OPDOCK_CACHE_MAX_BYTES; least recently used go first
};

// Returns the options that OPDOCK_CACHE_DIR, XDG_CACHE_HOME, HOME and OPDOCK_CACHE_MAX_BYTES
// specify. Adds a reason for what is wrong with them: an invalid value (cache-setting), or why
// there is no folder (cache-unusable); under AT_SECURE there is none. If OPDOCK_CACHE_DIR names a
// cache that cannot be written, its memos go to the user's own cache folder.
CacheOptions cache_options_from_environment(std::vector<Reason>* reasons);

// Thread-safe. Errors of the file system never throw: each becomes a reason and a miss.
class Cache {
 public:
  // Checks the folder, which is created on first writing. A folder that cannot be used (foreign
  // owner, writable by others, below a folder such as /tmp) gives a cache that misses everything,
  // and adds its reason.
  static std::unique_ptr<Cache> open(const CacheOptions& options, std::vector<Reason>* reasons);
  virtual ~Cache() = default;

  // Returns the variants of a request: the one made by `preferred` first, then the newest first.
  // Damaged variants are set aside with a reason: they are never returned and never block. Marks
  // the returned ones as used.
  virtual std::vector<std::shared_ptr<CacheEntry>> find(const CacheRequest& request,
                                                        const CacheMaker* preferred,
                                                        std::vector<Reason>* reasons) = 0;

  // Waits until no other thread, process or host makes this request's variant, or until one has
  // made it or its failure is remembered (CacheLock::is_turn). After 2 s of waiting, reports to
  // progress for whom it waits (pid, host). Returns NULL and a reason in four cases: there is no
  // cache; the wait was cancelled; this thread itself holds the lock (within-itself: a hook of the
  // work asks for what the work makes); or the lock's file or folder cannot be written (then the
  // caller may make the result without publishing it). After acquiring, look again with find().
  virtual std::unique_ptr<CacheLock> lock(const CacheRequest& request, const CacheMaker& maker,
                                          Progress* progress, std::vector<Reason>* reasons) = 0;

  // Publishes atomically and durably: a temporary file, fsync, rename, fsync of the folder. If
  // another has published the same variant meanwhile, returns that one. On failure (no space, read
  // only, …) returns NULL and a reason, and leaves nothing behind.
  virtual std::shared_ptr<CacheEntry> publish_blobs(const CacheRequest& request,
                                                    const CacheMaker& maker,
                                                    const std::vector<CacheBlob>& blobs,
                                                    std::vector<Reason>* reasons) = 0;
  // Publishes blobs in place of those that the variant had, or removes the variant if `blobs` is
  // empty; readers find either the old or the new state. The caller holds the request's lock.
  // Returns false and a reason on failure.
  virtual bool replace_blobs(const CacheRequest& request, const CacheMaker& maker,
                             const std::vector<CacheBlob>& blobs, std::vector<Reason>* reasons);
  // Makes a folder to build in, on the cache's file system, private to this process.
  // discard_folder() removes it, or a later gc when its owner is dead.
  virtual std::optional<std::string> make_folder(std::vector<Reason>* reasons) = 0;
  virtual void discard_folder(const std::string& folder) = 0;
  // Takes over `files` (names relative to folder, which make_folder returned) as the variant's, and
  // removes everything else in the folder. On success the folder no longer exists; on failure it
  // stays, with the files, to be used without the cache or discarded.
  virtual std::shared_ptr<CacheEntry> publish_folder(const CacheRequest& request,
                                                     const CacheMaker& maker,
                                                     const std::string& folder,
                                                     const std::vector<std::string>& files,
                                                     std::vector<Reason>* reasons) = 0;

  // Remembers a failure for request and maker until an input changes. failure() finds it;
  // forget_failure() and `opdock cache clear` forget it.
  virtual void remember_failure(const CacheRequest& request, const CacheMaker& maker,
                                const std::vector<Reason>& why, std::string_view log) = 0;
  virtual std::optional<std::vector<Reason>> failure(const CacheRequest& request,
                                                     const CacheMaker& maker,
                                                     std::string* log_path) = 0;
  virtual void forget_failure(const CacheRequest& request) = 0;

  // Moves a variant that turned out to be unusable (it does not load) out of the way.
  virtual void quarantine(const CacheEntry& entry, const Reason& why) = 0;

  // Compares the request with the newest entry of the same kind and subject that has another key.
  // Returns the fields that differ, as "source axpy.cc changed", "option 3: found …, was …".
  virtual std::vector<std::string> what_changed(const CacheRequest& request) = 0;

  // A text that this machine keeps under a name, to spare itself work; it may be lost at any time.
  // recall() returns nullopt if there is none or if it is damaged. remember() is best effort, and
  // writes only to a cache that exists already, or to CacheOptions::memo_folder.
  virtual std::optional<std::string> recall(const std::string& name) const;
  virtual void remember(const std::string& name, const std::string& text);

  virtual const std::string& folder() const = 0;  // empty: none
};

}  // namespace opdock
