// Records all operations, so that a stamp in memory leads to the operation that left it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "engine.h"

namespace softgpu {

class KernelLibrary;

// An operation that accessed device memory. Kept until the process ends.
struct OperationRecord {
  std::string what;
  int device = 0;
  uint32_t stream = 0;
  uint64_t number = 0;  // 0: the operation has no place in a stream's order
  uint32_t first_run = 0;
  uint64_t blocks = 1;
  uint32_t grid[3] = {1, 1, 1}, threads[3] = {1, 1, 1};
  std::shared_ptr<KernelLibrary> library;  // for a launch
  // A block that passes very many barriers continues under another run.
  std::mutex mutex;
  std::map<uint32_t, uint64_t> further;  // run, block

  // Returns the number of the block that the run belongs to.
  uint64_t block_of(uint32_t run);
};

// Makes a record whose runs first_run, first_run + 1, … belong to its `runs` blocks.
OperationRecord* record_operation(const Operation& operation, uint64_t runs);
// Adds another run of `block`.
uint32_t further_run(OperationRecord* record, uint64_t block);

OperationRecord* operation_of_run(uint32_t run);

// Returns whether `record` is ordered before `operation` by streams and events.
bool ordered_before(const OperationRecord& record, const Operation& operation);
// Returns whether `record` is an operation that a launch which begins early has to wait for
// (Operation::early).
bool may_be_under_way(const OperationRecord& record, const Operation& operation);

}  // namespace softgpu
