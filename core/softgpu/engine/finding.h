// A fault of a kernel or a copy, and its text.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "engine.h"
#include "memory.h"

namespace softgpu {

struct Lane;
struct OperationRecord;

enum class FindingKind : uint8_t {
  kNone,
  kOutside,  // of any memory that the thread may access so
  kMisaligned,
  kUninitialised,
  kRace,             // with `other`, of the same block
  kBlockRace,        // of another block
  kNotFenced,        // of another block, which has handed it over but for a fence of the thread
  kDifferentValues,  // as `other` wrote
  kUnordered,        // against `other`, of another operation
  kEarly,            // of an operation that a programmatic launch has not waited for
  kReadOnly,
  kOtherDevice,
  kBarrier,       // not reached by all
  kBarrierSites,  // at different places
  kWarp,          // likewise for what a warp does together
  kWarpSites,
  kNoSuchLane,
  kTooMuchShared,
  kTrap,
  kEndless,  // a block that goes on and on
  kSpin,     // the same, by atomic operations that change nothing
  kConversion,
  kDivideByZero,
  kDivideOverflow,
  kNoSuchBlock,  // in the cluster
  kNotShared,    // an address that should be in shared memory
};

// Noted by the thread that it befalls; described when that has stopped.
struct Finding {
  FindingKind kind = FindingKind::kNone;
  Lane* lane = nullptr;
  const void* pc = nullptr;
  uintptr_t address = 0;
  uint64_t bytes = 0;
  bool write = false;
  bool atomic = false;
  Stamp other = 0;
  uint32_t other_site = 0;
  bool other_write = false;
  int number = 0;  // kNoSuchLane, kNoSuchBlock: which
};

Fault fault_of(const Finding& finding);

// Where an address of global memory lies: "0x… is 4 bytes after the end of an allocation of …".
std::string describe_memory(uintptr_t address, uint64_t bytes);
// Who `stamp` was: "thread (3, 0, 0) of block (1, 0, 0), softmax.cuh:120".
std::string describe_stamp(Stamp stamp, uint32_t site, const OperationRecord* here);

// ask_pending_writes()'s answer; none before that was called.
std::vector<std::string> pending_writes(const Operation& reader, uintptr_t address);

// Prints it and keeps it for findings(), and `fault` for last_fault().
void report(const std::string& text, Fault fault);

}  // namespace softgpu
