// A block during its execution: its threads, its warps and its shared memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "counting.h"
#include "fiber.h"
#include "handover.h"
#include "memory.h"
#include "module.h"

namespace softgpu {

class Runner;
struct Block;
struct Warp;

// The state of a thread of a block.
enum class LaneState : uint8_t { kReady, kAtBlockBarrier, kAtClusterBarrier, kInWarp, kDone };

// A store that overwrites a value of another block or thread in the same launch without being
// ordered after it. It is a finding only if it changes the value, which is checked at the thread's
// next call.
struct PendingStore {
  uintptr_t address = 0;
  uint32_t bytes = 0;  // 0: none
  uint8_t kind = 0;    // FindingKind
  uint8_t before[16] = {};
  Stamp other = 0;
  uint32_t other_site = 0;
  const void* pc = nullptr;
};

// Successive atomic operations of a thread at one address that found the same value there.
struct Spin {
  uintptr_t address = 0;
  uint64_t value = 0;
  uint32_t count = 0;
};

// A thread of a block. Stored near the end of its fiber's memory (module.h).
struct Lane {
  LaneView view;
  Runner* runner;
  Block* block;
  Warp* warp;
  uint32_t number;  // in the block
  LaneState state;
  Stamp stamp;     // of its current accesses
  const void* pc;  // the place where it waits
  WarpOp warp_op;
  int warp_argument;
  uint64_t warp_value;
  uint64_t warp_result;
  unsigned copy_groups;  // number of groups that it has committed
  // The thread has waited for the previous launch, or has passed a barrier with one that had.
  bool waited;
  Spin spin;
  PendingStore pending;
  Context context;
};
static_assert(sizeof(Lane) <= kLaneRoom);

struct Warp {
  uint32_t first = 0, count = 0;  // its lanes, by their number in the block
  uint32_t waiting = 0;           // lanes waiting in the same operation
  uint32_t epoch = 0;  // barriers that the warp has passed since the block's last barrier
};

struct SharedArray {
  const void* site = nullptr;
  uintptr_t begin = 0;
  uint64_t bytes = 0;
  uint64_t alignment = 0;
  const void* pc = nullptr;  // its declaration
};

struct Block {
  uint32_t index[3] = {0, 0, 0};
  uint64_t number = 0;  // in the grid, x running fastest
  uint32_t run = 0;
  uint32_t epoch = 0;
  uint32_t waiting = 0;  // threads at the barrier
  uint32_t done = 0;
  std::vector<Lane*> lanes;
  std::vector<Warp> warps;
  uintptr_t shared_begin = 0;  // its own part of the arena
  uint64_t shared_used = 0;    // bytes of it in use, from its start
  uint64_t static_bytes = 0;
  SharedArray dynamic_shared;
  std::vector<SharedArray> arrays;
  std::unique_ptr<BlockCounting> counting;  // null if counters are off
  BlockKnowledge knowledge;
};

}  // namespace softgpu
