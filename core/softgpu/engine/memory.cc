// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace softgpu {
namespace {

void* reserve(uint64_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

// Reserves as many addresses as the machine allows: memory is used only where it is touched.
Arena reserve_arena() {
  for (uint64_t bytes = uint64_t{1} << 40; bytes >= uint64_t{1} << 30; bytes >>= 1) {
    Arena arena;
    arena.bytes = bytes;
    void* const data = reserve(bytes);
    void* const pages = reserve((bytes >> kPageShift) * sizeof(Page));
    void* const cells = reserve(bytes * sizeof(Cell));
    if (data && pages && cells) {
      madvise(cells, bytes * sizeof(Cell), MADV_DONTDUMP);
      arena.begin = reinterpret_cast<uintptr_t>(data);
      arena.pages = static_cast<Page*>(pages);
      arena.cells = static_cast<Cell*>(cells);
      return arena;
    }
    if (data) munmap(data, bytes);
    if (pages) munmap(pages, (bytes >> kPageShift) * sizeof(Page));
    if (cells) munmap(cells, bytes * sizeof(Cell));
  }
  std::fputs("softgpu: no 33 GiB of addresses can be reserved for device memory; see ulimit -v\n",
             stderr);
  std::abort();
}

std::mutex addresses_mutex;
uint64_t next_address = kPageBytes;  // offset from the arena's start

// Calls what(page, address) for each page that [begin, begin + bytes) spans.
template <typename F>
void each_page(uintptr_t begin, uint64_t bytes, F what) {
  const uintptr_t base = arena().begin;
  const uint64_t first = (begin - base) >> kPageShift;
  const uint64_t last = (begin + std::max<uint64_t>(bytes, 1) - 1 - base) >> kPageShift;
  for (uint64_t i = first; i <= last; ++i) what(arena().pages[i], base + (i << kPageShift));
}

}  // namespace

const Arena& arena() {
  static const Arena arena = reserve_arena();
  return arena;
}

uintptr_t take_addresses(uint64_t bytes) {
  const uint64_t size = (bytes + kPageBytes - 1) & ~(uint64_t{kPageBytes} - 1);
  const Arena& all = arena();
  if (size > all.bytes - 2 * kPageBytes) return 0;
  const std::lock_guard<std::mutex> lock(addresses_mutex);
  // Continues after the last range that was handed out and wraps around. Skips pages that are in
  // use.
  uint64_t at = next_address;
  bool wrapped = false;
  for (;;) {
    if (at + size + kPageBytes > all.bytes) {
      if (wrapped) return 0;
      wrapped = true;
      at = kPageBytes;
    }
    uint64_t free = 0;
    while (free < size) {
      const PageKind kind = all.pages[(at + free) >> kPageShift].kind;
      if (kind == PageKind::kGlobal || kind == PageKind::kShared) break;
      free += kPageBytes;
    }
    if (free >= size) break;
    at += free + 2 * kPageBytes;
  }
  next_address = at + size + kPageBytes;  // leaves one unused page as a guard
  return all.begin + at;
}

void open_pages(uintptr_t begin, uint64_t bytes, PageKind kind, int device) {
  const uintptr_t end = begin + bytes;
  each_page(begin, bytes, [&](Page& page, uintptr_t at) {
    const PageLock lock(&page);
    page.cell_shift = kPageShift;
    page.whole = Cell();
    page.kind = kind;
    page.device = static_cast<uint8_t>(device);
    page.begin = static_cast<uint16_t>(begin > at ? begin - at : 0);
    page.end = static_cast<uint16_t>(std::min<uintptr_t>(end - at, kPageBytes));
  });
}

void close_pages(uintptr_t begin, uint64_t bytes, PageKind kind) {
  each_page(begin, bytes, [&](Page& page, uintptr_t) {
    const PageLock lock(&page);
    page.kind = kind;
    page.begin = page.end = 0;
  });
}

void give_back_pages(uintptr_t begin, uint64_t bytes) {
  const uintptr_t first = begin & ~(uintptr_t{kPageBytes} - 1);
  const uintptr_t last = (begin + bytes + kPageBytes - 1) & ~(uintptr_t{kPageBytes} - 1);
  madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  madvise(arena().cells + (first - arena().begin), (last - first) * sizeof(Cell), MADV_DONTNEED);
}

void refine(Page* page, Cell* cells, uint32_t offset, uint64_t bytes) {
  const unsigned shift = page->cell_shift;
  // A cell for the 16 bytes of a vector: four times fewer cells than with one per element.
  unsigned finer = 4;
  while (finer && ((offset | bytes) & ((1u << finer) - 1))) --finer;
  if (finer >= shift) return;
  if (shift == kPageShift) {
    for (size_t i = page->begin >> finer; static_cast<int>(i << finer) < page->end; ++i)
      cells[i] = page->whole;
  } else {
    // Backwards, because the coarser cells lie closer together at lower indices.
    const unsigned times = shift - finer;
    for (size_t i = (size_t{page->end} - 1) >> finer;; --i) {
      cells[i] = cells[i >> times];
      if (i <= size_t{page->begin} >> finer) break;
    }
  }
  page->cell_shift = static_cast<uint8_t>(finer);
}

}  // namespace softgpu
