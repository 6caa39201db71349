// What operations there were, so that a stamp in memory leads to the one that left it.
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

// An operation that touched device memory; never forgotten.
struct OperationRecord {
  std::string what;
  int device = 0;
  uint32_t stream = 0;
  uint64_t number = 0;  // 0: order was not said
  uint32_t first_run = 0;
  uint64_t blocks = 1;
  uint32_t grid[3] = {1, 1, 1}, threads[3] = {1, 1, 1};
  std::shared_ptr<KernelLibrary> library;  // of a launch
  // A block that passes very many barriers goes on as another run.
  std::mutex mutex;
  std::map<uint32_t, uint64_t> further;  // run, block

  // The number of the block whose run this is.
  uint64_t block_of(uint32_t run);
};

// A record whose runs first_run, first_run + 1, … stand for its `runs` blocks.
OperationRecord* record_operation(const Operation& operation, uint64_t runs);
// One more run, of `block`.
uint32_t further_run(OperationRecord* record, uint64_t block);

OperationRecord* operation_of_run(uint32_t run);

// Whether `record` is ordered before `operation` by streams and events.
bool ordered_before(const OperationRecord& record, const Operation& operation);
// Whether it is one of those that a launch which begins early has to wait for (Operation::early).
bool may_be_under_way(const OperationRecord& record, const Operation& operation);

}  // namespace softgpu
