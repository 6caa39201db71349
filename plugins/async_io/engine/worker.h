// One of an engine's threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "core.h"

namespace async_io {

// Takes jobs, opens their files, and passes their blocks to the kernel. Allocates only in its
// constructor.
class Worker {
 public:
  // `ring`: nullptr for plain system calls.
  Worker(Core* core, Ring* ring);
  // Returns when the engine stops and nothing is left to do.
  void work();
  Core* core() const { return core_; }

 private:
  bool step();
  Job* take_blocks();
  void open(Job* job);
  void hand_over();
  uint32_t hand_to_ring(uint32_t count);
  void reap(bool wait);
  void settle(uint32_t slot, int64_t result);
  void finish(Job* job);

  Core* const core_;
  Ring* const ring_;
  // Arrays of queue_depth elements; the counts tell how many are in use.
  std::vector<Piece> pieces_;     // by slot
  std::vector<uint32_t> free_;    // slots without a piece; free_count_ of them
  std::vector<uint32_t> taken_;   // slots that this round has filled; taken_count_ of them
  std::vector<uint32_t> ringed_;  // those of taken_ that are for the ring
  std::vector<Completion> ended_;
  uint32_t free_count_;
  uint32_t taken_count_ = 0;
  uint32_t in_flight_ = 0;  // number of pieces in the ring
};

}  // namespace async_io
