// SPDX-License-Identifier: Apache-2.0
#include "operations.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>

namespace softgpu {
namespace {

// Runs are handed out in chunks of 256; each chunk belongs to one operation.
constexpr unsigned kChunkShift = 8;
constexpr uint64_t kChunks = uint64_t{1} << (32 - kChunkShift);

std::mutex operations_mutex;
uint64_t next_chunk = 1;

std::deque<OperationRecord>& records() {
  static auto* const all = new std::deque<OperationRecord>;  // never destroyed: used at exit
  return *all;
}

std::atomic<OperationRecord*>* owners() {
  static auto* const table = static_cast<std::atomic<OperationRecord*>*>(
      mmap(nullptr, kChunks * sizeof(void*), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return table;
}

uint32_t take_runs(OperationRecord* record, uint64_t runs) {
  const uint64_t chunks = (runs + (1u << kChunkShift) - 1) >> kChunkShift;
  if (next_chunk + chunks > kChunks) {
    std::fputs(
        "softgpu: one process has executed as many operations and blocks as it can tell "
        "apart\n",
        stderr);
    std::abort();
  }
  const uint64_t first = next_chunk;
  next_chunk += chunks;
  for (uint64_t i = first; i < next_chunk; ++i)
    owners()[i].store(record, std::memory_order_release);
  return static_cast<uint32_t>(first << kChunkShift);
}

}  // namespace

OperationRecord* record_operation(const Operation& operation, uint64_t runs) {
  const std::lock_guard<std::mutex> lock(operations_mutex);
  OperationRecord& record = records().emplace_back();
  record.what = operation.what;
  record.device = operation.device;
  record.stream = operation.stream;
  record.number = operation.number;
  record.blocks = runs;
  record.first_run = take_runs(&record, runs);
  return &record;
}

uint32_t further_run(OperationRecord* record, uint64_t block) {
  const std::lock_guard<std::mutex> lock(operations_mutex);
  const uint32_t run = take_runs(record, 1);
  const std::lock_guard<std::mutex> record_lock(record->mutex);
  record->further[run] = block;
  return run;
}

uint64_t OperationRecord::block_of(uint32_t run) {
  if (run >= first_run && run - first_run < blocks) return run - first_run;
  const std::lock_guard<std::mutex> lock(operations_mutex);
  const auto found = further.find(run);
  return found == further.end() ? 0 : found->second;
}

OperationRecord* operation_of_run(uint32_t run) {
  return owners()[run >> kChunkShift].load(std::memory_order_acquire);
}

bool may_be_under_way(const OperationRecord& record, const Operation& operation) {
  return operation.early != 0 && record.stream == operation.stream &&
         record.number >= operation.early && record.number < operation.number;
}

bool ordered_before(const OperationRecord& record, const Operation& operation) {
  if (record.number == 0 || operation.number == 0) return true;
  if (record.stream == operation.stream) return record.number <= operation.number;
  return record.stream < operation.before.size() &&
         record.number <= operation.before[record.stream];
}

}  // namespace softgpu
