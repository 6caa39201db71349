// A finding in a kernel or a copy, and its text.
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
  kOutside,  // of all memory that the thread may access in this way
  kMisaligned,
  kUninitialised,
  kRace,             // with `other`, a thread of the same block
  kBlockRace,        // with a thread of another block
  kNotFenced,        // another block handed it over, but the thread's own fence is missing
  kDifferentValues,  // than `other` wrote
  kUnordered,        // with `other`, which belongs to another operation
  kEarly,            // with an operation that a programmatic launch has not waited for
  kReadOnly,
  kOtherDevice,
  kBarrier,       // not all threads reach it
  kBarrierSites,  // threads reach it at different places
  kWarp,          // the same two for operations of a warp
  kWarpSites,
  kNoSuchLane,
  kTooMuchShared,
  kTrap,
  kEndless,  // a block that does not end
  kSpin,     // the same, in atomic operations that change nothing
  kConversion,
  kDivideByZero,
  kDivideOverflow,
  kNoSuchBlock,  // of the cluster
  kNotShared,    // the address is not in shared memory, as it must be
};

// Recorded by the thread in which it occurs, and described after that thread has stopped.
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
  int number = 0;  // for kNoSuchLane and kNoSuchBlock: the lane or block
};

Fault fault_of(const Finding& finding);

// Describes where an address of global memory lies: "0x… is 4 bytes after the end of an allocation
// of …".
std::string describe_memory(uintptr_t address, uint64_t bytes);
// Describes which thread `stamp` belongs to: "thread (3, 0, 0) of block (1, 0, 0),
// softmax.cuh:120".
std::string describe_stamp(Stamp stamp, uint32_t site, const OperationRecord* here);

// Calls the function that ask_pending_writes() has set; returns nothing before that.
std::vector<std::string> pending_writes(const Operation& reader, uintptr_t address);

// Prints the text and keeps it for findings(), and keeps `fault` for last_fault().
void report(const std::string& text, Fault fault);

}  // namespace softgpu
