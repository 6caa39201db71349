// Device memory and its shadow. All global and shared memory lies in one reserved range of
// addresses. Each page of 4 KiB has a kind, and has cells that remember for each few bytes which
// thread wrote and which one read them last.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softgpu {

// Identifies an access to memory: the run (operations.h) of a block, the thread, and how many
// barriers it had passed. 0: no access; the memory is uninitialised.
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
  uint32_t write_site = 0;  // offset of the next instruction from the kernel library's start
  uint32_t read_site = 0;
  uint32_t write_fences = 0;  // number of fences that the block had executed before (handover.h)
  uint32_t read_fences = 0;

  bool operator==(const Cell&) const = default;
};

constexpr unsigned kPageShift = 12;
constexpr size_t kPageBytes = size_t{1} << kPageShift;

enum class PageKind : uint8_t { kNone, kGlobal, kShared, kReleased };

struct Page {
  std::atomic<uint8_t> lock;
  uint8_t cell_shift;  // a cell covers 2^0 to 2^4 bytes; 2^12: only `whole` is used
  PageKind kind;
  uint8_t device;
  uint16_t begin, end;  // the bytes that belong to an allocation
  Cell whole;
};
static_assert(sizeof(Page) == 40);

// Cells are written under the page's lock, because blocks run on several threads. NULL: no lock.
class PageLock {
 public:
  explicit PageLock(Page* page) : page_(page) {
    for (int turns = 0; page_ && page_->lock.exchange(1, std::memory_order_acquire); ++turns)
      if (turns > 100) sched_yield();  // the thread that holds the lock may need this core
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
  Cell* cells = nullptr;  // room for one cell per byte

  bool contains(uintptr_t address) const { return address - begin < bytes; }
  Page& page(uintptr_t address) const { return pages[(address - begin) >> kPageShift]; }
  // Returns the cells of the page that contains `address`.
  Cell* cells_of(uintptr_t address) const {
    return cells + ((address - begin) & ~(uintptr_t{kPageBytes} - 1));
  }
};
// Returns the arena, which is reserved on first use.
const Arena& arena();

// Makes the page's cells so small that [offset, offset + bytes) consists of whole cells. The page
// must be locked.
void refine(Page* page, Cell* cells, uint32_t offset, uint64_t bytes);

// Returns unused addresses for `bytes` bytes, at the start of a page. They have not been used
// before, or not recently. 0: none are left.
uintptr_t take_addresses(uint64_t bytes);
// Makes the pages an allocation of [begin, begin + bytes), which is uninitialised.
void open_pages(uintptr_t begin, uint64_t bytes, PageKind kind, int device);
// Makes the pages kNone or kReleased.
void close_pages(uintptr_t begin, uint64_t bytes, PageKind kind);
// Returns the memory of closed pages to the system.
void give_back_pages(uintptr_t begin, uint64_t bytes);

}  // namespace softgpu
