// Device memory and its shadow. All of it, global and shared, lies in one reserved range of
// addresses; each page of 4 KiB says what it is, and has cells that remember of each few bytes who
// wrote and who read them last.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softgpu {

// Who accessed memory: the run (operations.h) of a block, its thread, and how many barriers it had
// passed. 0: nobody, the memory is uninitialised.
using Stamp = uint64_t;
constexpr unsigned kThreadShift = 22;      // 10 bits
constexpr unsigned kBlockEpochShift = 12;  // 10 bits
constexpr unsigned kWarpEpochShift = 3;    // 9 bits
constexpr uint32_t kMaxBlockEpoch = 1023;
constexpr uint32_t kMaxWarpEpoch = 511;
constexpr Stamp kAtomic = 1;
constexpr Stamp kManyLanes = 2;  // read by several threads of a warp since its last barrier
constexpr Stamp kManyWarps = 4;  // read by several warps since the block's last barrier
constexpr Stamp kFlags = 7;

inline uint32_t run_of(Stamp stamp) {
  return static_cast<uint32_t>(stamp >> 32);
}
inline uint32_t thread_of(Stamp stamp) {
  return static_cast<uint32_t>(stamp >> kThreadShift) & 1023;
}
inline uint32_t block_epoch_of(Stamp stamp) {
  return static_cast<uint32_t>(stamp >> kBlockEpochShift) & 1023;
}
inline uint32_t warp_epoch_of(Stamp stamp) {
  return static_cast<uint32_t>(stamp >> kWarpEpochShift) & 511;
}

struct Cell {
  Stamp write = 0;
  Stamp read = 0;
  uint32_t write_site = 0;  // the instruction after it, from the kernel library's begin
  uint32_t read_site = 0;
  uint32_t write_fences = 0;  // that the block had had before (handover.h)
  uint32_t read_fences = 0;

  bool operator==(const Cell&) const = default;
};

constexpr unsigned kPageShift = 12;
constexpr size_t kPageBytes = size_t{1} << kPageShift;

enum class PageKind : uint8_t { kNone, kGlobal, kShared, kReleased };

struct Page {
  std::atomic<uint8_t> lock;
  uint8_t cell_shift;  // a cell is for so many bytes: 2^0 to 2^4, or 2^12, and then it is `whole`
  PageKind kind;
  uint8_t device;
  uint16_t begin, end;  // the bytes that belong to an allocation
  Cell whole;
};
static_assert(sizeof(Page) == 40);

// Cells are written under the page's lock: blocks run on several threads. NULL: no lock.
class PageLock {
 public:
  explicit PageLock(Page* page) : page_(page) {
    for (int turns = 0; page_ && page_->lock.exchange(1, std::memory_order_acquire); ++turns)
      if (turns > 100) sched_yield();  // whoever has it may wait for this core
  }
  ~PageLock() {
    if (page_) page_->lock.store(0, std::memory_order_release);
  }
  PageLock(const PageLock&) = delete;
  PageLock& operator=(const PageLock&) = delete;

 private:
  Page* page_;
};

struct Arena {
  uintptr_t begin = 0;
  uint64_t bytes = 0;
  Page* pages = nullptr;
  Cell* cells = nullptr;  // room for one a byte

  bool contains(uintptr_t address) const { return address - begin < bytes; }
  Page& page(uintptr_t address) const { return pages[(address - begin) >> kPageShift]; }
  // The cells of the page in which `address` lies.
  Cell* cells_of(uintptr_t address) const {
    return cells + ((address - begin) & ~(uintptr_t{kPageBytes} - 1));
  }
};
// Reserved on first use.
const Arena& arena();

// Makes the page's cells so small that [offset, offset + bytes) is made of whole ones. Under its
// lock.
void refine(Page* page, Cell* cells, uint32_t offset, uint64_t bytes);

// Addresses for `bytes` bytes from a page's begin on, not used before or long ago. 0: none left.
uintptr_t take_addresses(uint64_t bytes);
// The pages become an allocation of [begin, begin + bytes), uninitialised.
void open_pages(uintptr_t begin, uint64_t bytes, PageKind kind, int device);
// They become kNone or kReleased.
void close_pages(uintptr_t begin, uint64_t bytes, PageKind kind);
// What is in closed pages is given back to the machine.
void give_back_pages(uintptr_t begin, uint64_t bytes);

}  // namespace softgpu
