// Atomic operations and fences.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>

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
  // Suspends the thread at random: a thread that waits for another one by atomic operations has to
  // let it run, and the order of threads varies.
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
  Block* const block = lane->block;
  state_->handover.announce(address, block->number,
                            block->knowledge.of(lane->number, warp_of(lane)));
  const uint64_t before = bytes == 4
                              ? change(reinterpret_cast<uint32_t*>(address), op, value, expected)
                              : change(reinterpret_cast<uint64_t*>(address), op, value, expected);
  IdSet taken;
  if (state_->handover.take(address, &taken)) block->knowledge.lanes[lane->number].taken.add(taken);
  notice_spin(lane, address, before);
  return before;
}

void Runner::notice_spin(Lane* lane, uintptr_t address, uint64_t value) {
  Spin& spin = lane->spin;
  if (spin.address != address || spin.value != value) spin = {address, value, 0};
  // The thread that this one waits for may need the processor.
  if (++spin.count % 1024 == 0 && state_->workers > 1)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

void Runner::fence(Lane* lane) {
  settle(lane);
  lane->block->knowledge.fence(lane->number, warp_of(lane), lane->stamp);
}

}  // namespace softgpu
