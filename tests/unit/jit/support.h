// Shared by the tests of run-time compilation: a cache in memory, and helpers for fake compilers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cache/cache.h"
#include "driver/driver.h"
#include "jit/compiler.h"
#include "support/temporary_folder.h"

namespace opdock_test {

using namespace opdock;
namespace fs = std::filesystem;

inline std::string key_of(const CacheRequest& request) {
  std::string text = request.kind + "\n";
  for (const CacheField& field : request.fields) {
    text += std::to_string(field.name.size()) + ":" + field.name;
    text += std::to_string(field.value.size()) + ":" + field.value;
  }
  return text;
}

class MemoryEntry : public CacheEntry {
 public:
  std::string key_, kind_, subject_, path_, folder_;
  std::vector<CacheField> fields_;
  CacheMaker maker_;
  std::vector<CacheBlob> blobs_;

  const std::string& key() const override { return key_; }
  const std::string& kind() const override { return kind_; }
  const std::string& subject() const override { return subject_; }
  const std::vector<CacheField>& fields() const override { return fields_; }
  const CacheMaker& maker() const override { return maker_; }
  int64_t created() const override { return 0; }
  const std::string& path() const override { return path_; }
  const std::string& folder() const override { return folder_; }
  bool blob(std::string_view name, std::span<const uint8_t>* out) const override {
    *out = {};
    for (const CacheBlob& blob : blobs_) {
      if (blob.name != name) continue;
      *out = {reinterpret_cast<const uint8_t*>(blob.bytes.data()), blob.bytes.size()};
      return true;
    }
    return false;
  }
};

// Implements the contract of cache.h in memory, without eviction, as a reference for how it is
// used.
class MemoryCache : public Cache {
 public:
  std::vector<std::shared_ptr<CacheEntry>> find(const CacheRequest& request,
                                                const CacheMaker* preferred,
                                                std::vector<Reason>*) override {
    const std::lock_guard lock(mutex_);
    ++finds;
    std::vector<std::shared_ptr<CacheEntry>> found;
    for (const auto& entry : entries) {
      if (entry->key() != key_of(request)) continue;
      const bool first = preferred != nullptr && entry->maker().id == preferred->id;
      found.insert(first ? found.begin() : found.end(), entry);
    }
    return found;
  }
  std::unique_ptr<CacheLock> lock(const CacheRequest&, const CacheMaker&, Progress*,
                                  std::vector<Reason>* reasons) override {
    ++locks;
    struct Lock : CacheLock {
      explicit Lock(bool turn) : turn(turn) {}
      bool is_turn() const override { return turn; }
      const bool turn;
    };
    if (!no_lock) return std::make_unique<Lock>(!before_turn || !before_turn());
    reasons->push_back(make_reason(*no_lock, "no lock", "one"));
    return nullptr;
  }
  std::shared_ptr<CacheEntry> publish_blobs(const CacheRequest& request, const CacheMaker& maker,
                                            const std::vector<CacheBlob>& blobs,
                                            std::vector<Reason>*) override {
    const std::lock_guard lock(mutex_);
    auto entry = std::make_shared<MemoryEntry>();
    entry->key_ = key_of(request);
    entry->kind_ = request.kind;
    entry->subject_ = request.subject;
    entry->fields_ = request.fields;
    entry->maker_ = maker;
    entry->blobs_ = blobs;
    entries.insert(entries.begin(), entry);
    return entry;
  }
  std::optional<std::string> make_folder(std::vector<Reason>*) override { return std::nullopt; }
  void discard_folder(const std::string&) override {}
  std::shared_ptr<CacheEntry> publish_folder(const CacheRequest&, const CacheMaker&,
                                             const std::string&, const std::vector<std::string>&,
                                             std::vector<Reason>*) override {
    return nullptr;
  }
  void remember_failure(const CacheRequest&, const CacheMaker&, const std::vector<Reason>&,
                        std::string_view) override {}
  std::optional<std::vector<Reason>> failure(const CacheRequest&, const CacheMaker&,
                                             std::string*) override {
    return std::nullopt;
  }
  void forget_failure(const CacheRequest&) override {}
  void quarantine(const CacheEntry& entry, const Reason& why) override {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries, [&](const auto& one) { return one.get() == &entry; });
    aside.push_back(why);
  }
  std::vector<std::string> what_changed(const CacheRequest&) override { return {}; }
  std::optional<std::string> recall(const std::string& name) const override {
    const auto known = memos.find(name);
    return known == memos.end() ? std::nullopt : std::optional(known->second);
  }
  void remember(const std::string& name, const std::string& text) override { memos[name] = text; }
  const std::string& folder() const override { return folder_; }

  std::map<std::string, std::string> memos;  // for one thread only
  std::vector<std::shared_ptr<MemoryEntry>> entries;
  std::vector<Reason> aside;
  std::atomic<int> finds{0}, locks{0};
  std::optional<Code> no_lock;  // why lock() gives no lock
  // Called by lock(), which simulates a wait if this returns true: something was published
  // meanwhile.
  std::function<bool()> before_turn;

 private:
  std::mutex mutex_;
  // Distinguishes this cache from those of other tests in the process.
  std::string folder_ = "memory-" + std::to_string(++count_);
  static inline std::atomic<int> count_{0};
};

// Returns how often a fake compiler has compiled in this process.
inline int compiles(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  int* const count =
      handle == nullptr ? nullptr : static_cast<int*>(dlsym(handle, "fake_compiles"));
  return count == nullptr ? -1 : __atomic_load_n(count, __ATOMIC_SEQ_CST);
}

inline bool has(const std::vector<Reason>& reasons, Code code) {
  for (const Reason& reason : reasons) {
    if (reason.code == code) return true;
  }
  return false;
}

inline std::string all_text(const std::vector<Reason>& reasons) {
  std::string text;
  for (const Reason& reason : reasons) text += to_text(reason) + "\n";
  return text;
}

inline std::string text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A driver that accepts any image and knows every kernel.
class LoadsAll : public Driver {
 public:
  Backend backend() const override { return Backend::kCuda; }
  Status facts(int, const opdock_device_facts**) override { return {}; }
  Status arch(int, std::string*) override { return {}; }
  Status enter(int, void*, void**) override { return {}; }
  void leave(void*) override {}
  Status load(int, std::span<const uint8_t>, ModuleHandle* out) override {
    *out = reinterpret_cast<ModuleHandle>(static_cast<intptr_t>(++loads));
    return {};
  }
  Status find(ModuleHandle module, const char*, FunctionHandle* out) override {
    *out = module;
    return {};
  }
  const std::vector<uint32_t>* params(FunctionHandle) override { return nullptr; }
  Status launch(FunctionHandle, void*, const opdock_launch&) override { return {}; }
  Status allocate(int, void*, uint64_t, void**) override { return {}; }
  Status release(int, void*, void*) override { return {}; }
  Status is_capturing(void*, bool*) override { return {}; }
  Status synchronize(void*) override { return {}; }
  void* symbol(const char*) override { return nullptr; }

  std::atomic<int> loads{0};
};

class Stop : public Progress {
 public:
  void step(std::string_view text, double) override {
    const std::lock_guard lock(mutex);
    steps.emplace_back(text);
  }
  bool cancelled() override {
    ++asked;
    return stop.load();
  }
  // wait_for_step() waits until the compilation has begun; wait_for_question() waits until
  // cancelled() is first called, which a thread does while it waits for another one's compilation.
  void wait_for_step() {
    for (;; std::this_thread::yield()) {
      const std::lock_guard lock(mutex);
      if (!steps.empty()) return;
    }
  }
  void wait_for_question() const {
    while (asked == 0) std::this_thread::yield();
  }
  std::atomic<bool> stop{false};
  std::atomic<int> asked{0};  // how often cancelled() was called
  std::mutex mutex;
  std::vector<std::string> steps;
};

}  // namespace opdock_test
