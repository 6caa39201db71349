// The functions that a kernel library calls.
// SPDX-License-Identifier: Apache-2.0
#include "library.h"
#include "runner.h"

namespace softgpu {
namespace {

Lane* of(LaneView* view) {
  return reinterpret_cast<Lane*>(view);
}

void access(LaneView* view, const void* address, Word bytes, unsigned how, const void* pc) {
  Lane* const lane = of(view);
  Access access;
  access.address = reinterpret_cast<uintptr_t>(address);
  access.bytes = bytes;
  access.write = how & kWrite;
  access.pc = pc;
  if (!(how & kAnyAlignment) && (access.address & (bytes - 1))) {
    Finding finding;
    finding.kind = FindingKind::kMisaligned;
    finding.address = access.address;
    finding.bytes = bytes;
    finding.write = access.write;
    finding.pc = pc;
    lane->runner->fail(lane, finding);
  }
  lane->runner->access(lane, access);
}

void block_barrier(LaneView* view, const void* pc) {
  of(view)->runner->block_barrier(of(view), pc);
}

unsigned long long warp(LaneView* view, WarpOp op, unsigned long long value, int argument,
                        const void* pc) {
  return of(view)->runner->warp(of(view), op, value, argument, pc);
}

void* shared(LaneView* view, const void* site, Word bytes, Word alignment, const void* pc) {
  return of(view)->runner->shared(of(view), site, bytes, alignment, pc);
}

void* dynamic_shared(LaneView* view) {
  const Block& block = *of(view)->block;
  // Without any, its first byte is already out of bounds.
  return reinterpret_cast<void*>(block.dynamic_shared.bytes ? block.dynamic_shared.begin
                                                            : block.shared_begin);
}

void trap(LaneView* view, const void* pc) {
  Finding finding;
  finding.kind = FindingKind::kTrap;
  finding.pc = pc;
  of(view)->runner->fail(of(view), finding);
}

}  // namespace

const Hooks kHooks = {
    .access = access,
    .block_barrier = block_barrier,
    .cluster_barrier = nullptr,
    .warp = warp,
    .shared = shared,
    .dynamic_shared = dynamic_shared,
    .cluster_shared = nullptr,
    .atomic = nullptr,
    .fence = nullptr,
    .copy_async = nullptr,
    .copy_commit = nullptr,
    .copy_wait = nullptr,
    .trap = trap,
};

}  // namespace softgpu
