// How blocks of one launch hand over data. One block writes, fences, and announces by an atomic
// operation; another block takes by an atomic operation at the same address, fences, and reads.
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

// A fence of a thread: its place, and the number of fences that its block has executed, including
// it.
struct Fence {
  Stamp stamp = 0;
  uint32_t number = 0;
};
using Fences = std::vector<Fence>;

// An earlier access to memory that another block now accesses.
struct Past {
  Stamp stamp = 0;
  uint32_t fences = 0;  // that its block had executed before
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

// The knowledge that a thread has received from other threads and passes on, since the last
// barrier. For a warp or a block: the knowledge of all its threads, since its own barriers.
struct Knowledge {
  IdSet taken;                           // announcements at the addresses of its atomic operations
  IdSet known;                           // taken ones that a fence has followed
  std::shared_ptr<const Fences> fenced;  // its own latest fences

  // Adds the knowledge of a thread that passes a barrier. The caller replaces the fences, because
  // the threads' fences are later than the ones before.
  void join(const Knowledge& other) {
    taken.add(other.taken);
    known.add(other.known);
  }
};

// The knowledge of a block, of its warps and of its threads. Warps and threads without any have no
// entry.
struct BlockKnowledge {
  Knowledge block;
  std::map<uint32_t, Knowledge> warps, lanes;
  uint32_t fences = 0;  // number of fences so far, of all threads

  void fence(uint32_t lane, uint32_t warp, Stamp stamp);
  void pass_warp_barrier(uint32_t warp, uint32_t first, uint32_t count);
  void pass_block_barrier();
  // Returns the thread's knowledge, then its warp's, then its block's.
  std::vector<const Knowledge*> of(uint32_t lane, uint32_t warp) const;
};

// The announcements at each address. Thread-safe.
class Handover {
 public:
  // Called before an atomic operation of a thread of `block` that has `knowledge`. Announces what
  // the thread has fenced and what it knows, for later atomic operations at the address.
  void announce(uintptr_t address, uint64_t block, const std::vector<const Knowledge*>& knowledge);
  // Called after an atomic operation. Returns the announcements at the address; false if there are
  // none.
  bool take(uintptr_t address, IdSet* taken);
  // Returns whether one of the sets contains an announcement of `block` that `past` comes before.
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
