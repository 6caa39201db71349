// How blocks of one launch hand data to each other: written, fenced, announced by an atomic
// operation; taken by an atomic operation at the same place, fenced, read.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "memory.h"

namespace softgpu {

// A fence of a thread: where it stood, and how many its block had then had with this one.
struct Fence {
  Stamp stamp = 0;
  uint32_t number = 0;
};
using Fences = std::vector<Fence>;

// An access to memory that another block comes across.
struct Past {
  Stamp stamp = 0;
  uint32_t fences = 0;  // that its block had had before
};

class IdSet {
 public:
  bool has(uint32_t id) const {
    return id / 64 < words_.size() && (words_[id / 64] >> (id % 64) & 1);
  }
  void add(uint32_t id) {
    if (words_.size() <= id / 64) words_.resize(id / 64 + 1);
    words_[id / 64] |= uint64_t{1} << (id % 64);
  }
  void add(const IdSet& other) {
    words_.resize(std::max(words_.size(), other.words_.size()));
    for (size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
  }
  void clear() { words_.clear(); }

 private:
  std::vector<uint64_t> words_;
};

// What a thread has of the others, and gives them, since the last barrier; what all threads of a
// warp or block have since theirs.
struct Knowledge {
  IdSet taken;                           // announced where it has done an atomic operation
  IdSet known;                           // and a fence has followed
  std::shared_ptr<const Fences> fenced;  // its own last ones

  // What comes from a barrier's threads; their fences are later than those of before.
  void join(const Knowledge& other) {
    taken.add(other.taken);
    known.add(other.known);
  }
};

// The knowledge of a block, of its warps and of its threads: only of those that have any.
struct BlockKnowledge {
  Knowledge block;
  std::map<uint32_t, Knowledge> warps, lanes;
  uint32_t fences = 0;  // so far, of any thread

  void fence(uint32_t lane, uint32_t warp, Stamp stamp);
  void pass_warp_barrier(uint32_t warp, uint32_t first, uint32_t count);
  void pass_block_barrier();
  // From the narrowest circle to the widest.
  std::vector<const Knowledge*> of(uint32_t lane, uint32_t warp) const;
};

// What was announced where. Thread-safe.
class Handover {
 public:
  // An atomic operation of a thread of `block` that has `knowledge` is about to be done: announces
  // what it has fenced and what it knows, so that who comes after it finds that.
  void announce(uintptr_t address, uint64_t block, const std::vector<const Knowledge*>& knowledge);
  // After one was done: what was announced there; false if nothing was.
  bool take(uintptr_t address, IdSet* taken);
  // Whether one of the sets has an announcement of `block` that `past` comes before.
  bool covers(const std::vector<const IdSet*>& sets, uint64_t block, const Past& past,
              uint32_t width);

 private:
  struct Announcement {
    uint32_t id = 0;
    std::shared_ptr<const Fences> fences;
  };
  std::mutex mutex_;
  uint32_t ids_ = 0;
  std::map<uintptr_t, IdSet> announced_;
  std::unordered_map<uint64_t, std::vector<Announcement>> of_block_;
};

}  // namespace softgpu
