// Atomic operations and fences.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "runner.h"

namespace softgpu {
namespace {

uint64_t result_of(AtomicOp op, uint64_t before, uint64_t value, uint64_t expected) {
  switch (op) {
    case AtomicOp::kAdd:
      return before + value;
    case AtomicOp::kAddFloat:
      return std::bit_cast<uint32_t>(std::bit_cast<float>(static_cast<uint32_t>(before)) +
                                     std::bit_cast<float>(static_cast<uint32_t>(value)));
    case AtomicOp::kMax:
      return static_cast<uint32_t>(
          std::max(static_cast<int32_t>(before), static_cast<int32_t>(value)));
    case AtomicOp::kMin:
      return static_cast<uint32_t>(
          std::min(static_cast<int32_t>(before), static_cast<int32_t>(value)));
    case AtomicOp::kExchange:
      return value;
    case AtomicOp::kCompareAndSwap:
      return before == expected ? value : before;
  }
  return before;
}

template <typename T>
uint64_t change(T* at, AtomicOp op, uint64_t value, uint64_t expected) {
  const PageLock lock(&arena().page(reinterpret_cast<uintptr_t>(at)));
  const T before = *at;
  *at = static_cast<T>(result_of(op, before, static_cast<T>(value), static_cast<T>(expected)));
  return before;
}

}  // namespace

uint64_t Runner::atomic(Lane* lane, AtomicOp op, uintptr_t address, unsigned bytes, uint64_t value,
                        uint64_t expected, const void* pc) {
  // Whoever waits for another thread by atomic operations lets it run, and orders vary.
  if (random_.below(4) == 0) {
    push(lane);
    suspend(lane);
  }
  Access access;
  access.address = address;
  access.bytes = bytes;
  access.write = access.atomic = access.aligned = true;
  access.pc = pc;
  this->access(lane, access);
  const uint64_t before = bytes == 4
                              ? change(reinterpret_cast<uint32_t*>(address), op, value, expected)
                              : change(reinterpret_cast<uint64_t*>(address), op, value, expected);
  state_->handover.meet(address, lane->block->number, lane->fenced, &lane->block->known);
  return before;
}

void Runner::fence(Lane* lane) {
  settle(lane);
  lane->fenced = true;
}

}  // namespace softgpu
