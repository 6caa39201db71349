// A minimal cache for tests of the builder: no lock files, digests or eviction; an entry is a
// folder, and entries are told apart by key and maker.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/sha256.h"
#include "cache/cache.h"

namespace opdock::testing {

class PlainEntry : public CacheEntry {
 public:
  PlainEntry(CacheRequest request, std::string key, CacheMaker maker, std::string folder)
      : request_(std::move(request)),
        key_(std::move(key)),
        maker_(std::move(maker)),
        folder_(std::move(folder)) {}
  const std::string& key() const override { return key_; }
  const std::string& kind() const override { return request_.kind; }
  const std::string& subject() const override { return request_.subject; }
  const std::vector<CacheField>& fields() const override { return request_.fields; }
  const CacheMaker& maker() const override { return maker_; }
  int64_t created() const override { return 0; }
  const std::string& path() const override { return folder_; }
  const std::string& folder() const override { return folder_; }
  bool blob(std::string_view, std::span<const uint8_t>*) const override { return false; }

 private:
  CacheRequest request_;
  std::string key_;
  CacheMaker maker_;
  std::string folder_;
};

class PlainCache : public Cache {
 public:
  explicit PlainCache(std::string folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
  }

  std::vector<std::shared_ptr<CacheEntry>> find(const CacheRequest& request,
                                                const CacheMaker* preferred,
                                                std::vector<Reason>*) override {
    std::lock_guard hold(mutex_);
    std::vector<std::shared_ptr<CacheEntry>> found;
    for (const std::shared_ptr<CacheEntry>& entry : entries_) {
      if (entry->key() != text(request)) continue;
      const bool first = preferred != nullptr && entry->maker().id == preferred->id;
      found.insert(first ? found.begin() : found.end(), entry);
    }
    return found;
  }
  std::unique_ptr<CacheLock> lock(const CacheRequest&, const CacheMaker&, Progress*,
                                  std::vector<Reason>*) override {
    struct Held : CacheLock {
      explicit Held(std::mutex& mutex) : hold(mutex) {}
      std::lock_guard<std::mutex> hold;
    };
    return std::make_unique<Held>(building_);
  }
  std::shared_ptr<CacheEntry> publish_blobs(const CacheRequest&, const CacheMaker&,
                                            const std::vector<CacheBlob>&,
                                            std::vector<Reason>*) override {
    return nullptr;
  }
  std::optional<std::string> make_folder(std::vector<Reason>*) override {
    std::lock_guard hold(mutex_);
    const std::string path = folder_ + "/work" + std::to_string(++number_);
    std::filesystem::create_directories(path);
    return path;
  }
  void discard_folder(const std::string& folder) override { std::filesystem::remove_all(folder); }
  std::shared_ptr<CacheEntry> publish_folder(const CacheRequest& request, const CacheMaker& maker,
                                             const std::string& folder,
                                             const std::vector<std::string>& files,
                                             std::vector<Reason>*) override {
    std::lock_guard hold(mutex_);
    const std::string target = folder_ + "/entry" + std::to_string(++number_);
    std::filesystem::create_directories(target);
    for (const std::string& file : files) {
      std::filesystem::rename(folder + "/" + file, target + "/" + file);
    }
    entries_.push_back(std::make_shared<PlainEntry>(request, text(request), maker, target));
    return entries_.back();
  }
  void remember_failure(const CacheRequest& request, const CacheMaker& maker,
                        const std::vector<Reason>& why, std::string_view log) override {
    std::lock_guard hold(mutex_);
    failures_[text(request) + maker.id] = why;
    last_log = log;
  }
  std::optional<std::vector<Reason>> failure(const CacheRequest& request, const CacheMaker& maker,
                                             std::string*) override {
    std::lock_guard hold(mutex_);
    const auto entry = failures_.find(text(request) + maker.id);
    if (entry == failures_.end()) return std::nullopt;
    return entry->second;
  }
  void forget_failure(const CacheRequest&) override {
    std::lock_guard hold(mutex_);
    failures_.clear();
  }
  void quarantine(const CacheEntry&, const Reason&) override {}
  std::vector<std::string> what_changed(const CacheRequest&) override { return {}; }
  const std::string& folder() const override { return folder_; }

  std::string last_log;

 private:
  static std::string text(const CacheRequest& request) {
    FieldHasher hasher;
    for (const CacheField& field : request.fields) hasher.add(field.name).add(field.value);
    return to_hex(hasher.finish());
  }

  std::string folder_;
  std::mutex mutex_, building_;
  int number_ = 0;
  std::vector<std::shared_ptr<CacheEntry>> entries_;
  std::map<std::string, std::vector<Reason>> failures_;
};

}  // namespace opdock::testing
