// A block while it is executed: its threads, its warps, its shared memory.
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

// Where a thread of a block is.
enum class LaneState : uint8_t { kReady, kAtBlockBarrier, kAtClusterBarrier, kInWarp, kDone };

// A store that overwrites what another block or thread wrote in the same launch, where nothing
// orders the two: a fault if it changes the value. Looked at when the thread comes by next.
struct PendingStore {
  uintptr_t address = 0;
  uint32_t bytes = 0;  // 0: none
  uint8_t kind = 0;    // FindingKind
  uint8_t before[16] = {};
  Stamp other = 0;
  uint32_t other_site = 0;
  const void* pc = nullptr;
};

// Atomic operations in a row at one place that found there what the last one had left.
struct Spin {
  uintptr_t address = 0;
  uint64_t value = 0;
  uint32_t count = 0;
};

// Near the end of a fiber's memory (module.h).
struct Lane {
  LaneView view;
  Runner* runner;
  Block* block;
  Warp* warp;
  uint32_t number;  // in the block
  LaneState state;
  Stamp stamp;     // of what it does now
  const void* pc;  // where it waits
  WarpOp warp_op;
  int warp_argument;
  uint64_t warp_value;
  uint64_t warp_result;
  unsigned copy_groups;  // that it has committed
  bool waited;           // for the launch before, or a barrier after one that has
  Spin spin;
  PendingStore pending;
  Context context;
};
static_assert(sizeof(Lane) <= kLaneRoom);

struct Warp {
  uint32_t first = 0, count = 0;  // its lanes, by their number in the block
  uint32_t waiting = 0;           // in the same operation
  uint32_t epoch = 0;             // barriers that it has passed since the block's last one
};

struct SharedArray {
  const void* site = nullptr;
  uintptr_t begin = 0;
  uint64_t bytes = 0;
  uint64_t alignment = 0;
  const void* pc = nullptr;  // where it is declared
};

struct Block {
  uint32_t index[3] = {0, 0, 0};
  uint64_t number = 0;  // in the grid, x running fastest
  uint32_t run = 0;
  uint32_t epoch = 0;
  uint32_t waiting = 0;  // at the barrier
  uint32_t done = 0;
  std::vector<Lane*> lanes;
  std::vector<Warp> warps;
  uintptr_t shared_begin = 0;  // its own piece of the arena
  uint64_t shared_used = 0;    // of it, from the begin
  uint64_t static_bytes = 0;
  SharedArray dynamic_shared;
  std::vector<SharedArray> arrays;
  std::unique_ptr<BlockCounting> counting;  // null: nobody asked
  BlockKnowledge knowledge;
};

}  // namespace softgpu
