// How blocks of one launch hand data to each other: written, fenced, announced by an atomic
// operation; taken by an atomic operation at the same place.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace softgpu {

class BlockSet {
 public:
  void clear() { words_.clear(); }
  bool has(uint64_t block) const {
    return block / 64 < words_.size() && (words_[block / 64] >> (block % 64) & 1);
  }
  void add(uint64_t block) {
    if (words_.size() <= block / 64) words_.resize(block / 64 + 1);
    words_[block / 64] |= uint64_t{1} << (block % 64);
  }
  void add(const BlockSet& other) {
    words_.resize(std::max(words_.size(), other.words_.size()));
    for (size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
  }

 private:
  std::vector<uint64_t> words_;
};

// What was announced where. Thread-safe.
class Handover {
 public:
  // An atomic operation of `block`, which knows `known`; `fenced`: and has fenced what it wrote.
  void meet(uintptr_t address, uint64_t block, bool fenced, BlockSet* known) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!fenced) {
      const auto found = announced_.find(address);
      if (found != announced_.end()) known->add(found->second);
      return;
    }
    BlockSet& there = announced_[address];
    known->add(there);
    there.add(*known);
    there.add(block);
  }

 private:
  std::mutex mutex_;
  std::map<uintptr_t, BlockSet> announced_;
};

}  // namespace softgpu
