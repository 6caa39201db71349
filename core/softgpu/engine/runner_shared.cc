// Shared memory of a block. Each array has its own pages, followed by an unused page as a guard.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "library.h"
#include "runner.h"

namespace softgpu {
namespace {

// The address has only the alignment that is required, so that code that relies on more is found.
SharedArray take_array(Block* block, uint64_t bytes, uint64_t alignment) {
  SharedArray array;
  array.begin = block->shared_begin + block->shared_used + alignment;
  array.bytes = bytes;
  array.alignment = alignment;
  const uint64_t pages = (alignment + bytes + kPageBytes - 1) / kPageBytes + 1;
  if (block->shared_used + pages * kPageBytes > kBlockShared) return SharedArray();
  block->shared_used += pages * kPageBytes;
  open_pages(array.begin, bytes, PageKind::kShared, 0);
  block->arrays.push_back(array);
  return array;
}

}  // namespace

void Runner::open_dynamic_shared(Block* block) {
  block->dynamic_shared = take_array(block, state_->launch->shared_bytes, 16);
}

SharedArray* Runner::array_of(Block* block, const void* site) {
  for (SharedArray& array : block->arrays)
    if (array.site == site) return &array;
  return nullptr;
}

void* Runner::shared(Lane* lane, const void* site, uint64_t bytes, uint64_t alignment,
                     const void* pc) {
  Block* const block = lane->block;
  if (const SharedArray* known = array_of(block, site))
    return reinterpret_cast<void*>(known->begin);
  block->static_bytes += bytes;
  SharedArray array;
  if (block->static_bytes <= state_->launch->most_static_shared)
    array = take_array(block, bytes, alignment);
  if (!array.begin) {
    Finding finding;
    finding.kind = FindingKind::kTooMuchShared;
    finding.pc = pc;
    finding.bytes = block->static_bytes;
    finding.number = static_cast<int>(state_->launch->most_static_shared);
    fail(lane, finding);
  }
  block->arrays.back().site = site;
  block->arrays.back().pc = pc;
  return reinterpret_cast<void*>(array.begin);
}

void* Runner::cluster_shared(Lane* lane, const void* address, unsigned rank, const void* pc) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(address);
  for (const SharedArray& array : lane->block->arrays) {
    if (at < array.begin || at >= array.begin + array.bytes || rank >= cluster_size_) continue;
    Block* const other = &blocks_[rank];
    SharedArray* theirs = array_of(other, array.site);
    // The other block has not reached the declaration yet.
    if (!theirs) {
      take_array(other, array.bytes, array.alignment);
      theirs = &other->arrays.back();
      theirs->site = array.site;
      theirs->pc = array.pc;
      other->static_bytes += array.bytes;
    }
    return reinterpret_cast<void*>(theirs->begin + (at - array.begin));
  }
  Finding finding;
  finding.kind = rank < cluster_size_ ? FindingKind::kNotShared : FindingKind::kNoSuchBlock;
  finding.pc = pc;
  finding.address = at;
  finding.number = static_cast<int>(rank);
  fail(lane, finding);
}

}  // namespace softgpu
