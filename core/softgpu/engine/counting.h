// Counts what a launch costs, as a GPU's own counters do. The lanes of a warp that execute the same
// instruction make one request if it is each lane's nth visit to that instruction, with the same n.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "engine.h"

namespace softgpu {

enum class RequestKind : uint8_t { kGlobalLoad, kGlobalStore, kSharedLoad, kSharedStore, kAtomic };

// The requests of one block's warps.
class BlockCounting {
 public:
  void begin(uint32_t warps, uint32_t warp_size);
  void access(uint32_t warp, uint32_t lane, const void* pc, RequestKind kind, uintptr_t address,
              uint64_t bytes);
  void warp_operation(bool barrier) { counts_.shuffles += !barrier; }
  void barrier() { ++counts_.barriers; }
  // Returns the block's counters. Call it when the block is done.
  const Counters& end();

 private:
  struct Request {
    RequestKind kind = RequestKind::kGlobalLoad;
    uint64_t bytes = 0;                              // per lane
    std::vector<std::pair<uint32_t, uintptr_t>> at;  // lane, address
  };
  struct Warp {
    // For each lane, how often it has executed an instruction.
    std::vector<std::unordered_map<const void*, uint32_t>> visits;
    std::unordered_map<uint64_t, Request> open;
  };
  void count(const Request& request);

  uint32_t warp_size_ = 32;
  std::vector<Warp> warps_;
  Counters counts_;
};

// sum += part, except for the name.
void add_counters(Counters* sum, const Counters& part);
// Adds to the totals of this kernel, which counters() returns.
void publish_counters(const Counters& launch);

}  // namespace softgpu
