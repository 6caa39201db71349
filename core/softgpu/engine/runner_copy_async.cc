// Asynchronous copies, which arrive only when a thread waits for them. Until then their destination
// counts as uninitialised.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "runner.h"

namespace softgpu {
namespace {

constexpr uint64_t kBytes = 16;

Access part(uintptr_t address, bool write, const void* pc) {
  Access access;
  access.address = address;
  access.bytes = kBytes;
  access.write = write;
  access.aligned = true;
  access.pc = pc;
  return access;
}

void forget_contents(uintptr_t address) {
  Page& page = arena().page(address);
  const PageLock lock(&page);
  const uint32_t offset = address & (kPageBytes - 1);
  Cell* const cells = arena().cells_of(address);
  for (size_t i = offset >> page.cell_shift; i <= (offset + kBytes - 1) >> page.cell_shift; ++i)
    cells[i].write = 0;
}

}  // namespace

void Runner::copy_async(Lane* lane, uintptr_t to, uintptr_t from, const void* pc) {
  access(lane, part(from, false, pc));
  access(lane, part(to, true, pc));
  if (to - lane->block->shared_begin >= kBlockShared) {
    found(FindingKind::kNotShared, part(to, true, pc), 0, 0, false);
    fail(lane, finding_);
  }
  forget_contents(to);
  AsyncCopy copy;
  copy.to = to;
  copy.from = from;
  copy.pc = pc;
  copies_[lane].push_back(copy);
}

void Runner::copy_commit(Lane* lane) {
  for (AsyncCopy& copy : copies_[lane]) {
    if (copy.committed) continue;
    copy.committed = true;
    copy.group = lane->copy_groups;
  }
  ++lane->copy_groups;
}

void Runner::copy_wait(Lane* lane, unsigned left) {
  std::vector<AsyncCopy>& copies = copies_[lane];
  const auto arrives = [&](const AsyncCopy& copy) {
    return copy.committed && copy.group + left < lane->copy_groups;
  };
  for (size_t i = 0; i < copies.size(); ++i) {
    const AsyncCopy copy = copies[i];
    if (!arrives(copy)) continue;
    Access arrival = part(copy.to, true, copy.pc);
    arrival.counted = false;  // it was counted when the copy started
    access(lane, arrival);
    std::memcpy(reinterpret_cast<void*>(copy.to), reinterpret_cast<const void*>(copy.from), kBytes);
  }
  copies.erase(std::remove_if(copies.begin(), copies.end(), arrives), copies.end());
}

// Returns a copy to these bytes of shared memory that has not arrived yet, or NULL.
const AsyncCopy* Runner::copy_under_way(uintptr_t address, uint64_t bytes) const {
  for (const auto& [lane, copies] : copies_)
    for (const AsyncCopy& copy : copies)
      if (copy.to < address + bytes && address < copy.to + kBytes) return &copy;
  return nullptr;
}

}  // namespace softgpu
