// The functions that kernel libraries call.
// SPDX-License-Identifier: Apache-2.0
#include "library.h"
#include "runner.h"

namespace softgpu {
namespace {

Lane* of(LaneView* view) {
  return reinterpret_cast<Lane*>(view);
}

void access(LaneView* view, const void* address, Word bytes, unsigned how, const void* pc) {
  Access access;
  access.address = reinterpret_cast<uintptr_t>(address);
  access.bytes = bytes;
  access.write = how & kWrite;
  access.aligned = !(how & kAnyAlignment);
  access.pc = pc;
  of(view)->runner->access(of(view), access);
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
  // If there is no dynamic shared memory, its first byte is already out of bounds.
  return reinterpret_cast<void*>(block.dynamic_shared.bytes ? block.dynamic_shared.begin
                                                            : block.shared_begin);
}

void cluster_barrier(LaneView* view, const void* pc) {
  of(view)->runner->cluster_barrier(of(view), pc);
}

void* cluster_shared(LaneView* view, const void* address, unsigned rank, const void* pc) {
  return of(view)->runner->cluster_shared(of(view), address, rank, pc);
}

unsigned long long atomic(LaneView* view, AtomicOp op, void* address, unsigned bytes,
                          unsigned long long value, unsigned long long expected, const void* pc) {
  return of(view)->runner->atomic(of(view), op, reinterpret_cast<uintptr_t>(address), bytes, value,
                                  expected, pc);
}

void fence(LaneView* view, const void*) {
  of(view)->runner->fence(of(view));
}

void copy_async(LaneView* view, void* to, const void* from, const void* pc) {
  of(view)->runner->copy_async(of(view), reinterpret_cast<uintptr_t>(to),
                               reinterpret_cast<uintptr_t>(from), pc);
}

void copy_commit(LaneView* view, const void*) {
  of(view)->runner->copy_commit(of(view));
}

void copy_wait(LaneView* view, unsigned left, const void*) {
  of(view)->runner->copy_wait(of(view), left);
}

void trap(LaneView* view, const void* pc) {
  Finding finding;
  finding.kind = FindingKind::kTrap;
  finding.pc = pc;
  of(view)->runner->fail(of(view), finding);
}

void launch_wait(LaneView* view, const void*) {
  of(view)->runner->launch_wait(of(view));
}

void out_of_steps(LaneView* view, const void* pc) {
  of(view)->runner->out_of_steps(of(view), pc);
}

void bad_conversion(LaneView* view, const void* pc) {
  Finding finding;
  finding.kind = FindingKind::kConversion;
  finding.pc = pc;
  of(view)->runner->fail(of(view), finding);
}

void bad_division(LaneView* view, bool by_zero, const void* pc) {
  Finding finding;
  finding.kind = by_zero ? FindingKind::kDivideByZero : FindingKind::kDivideOverflow;
  finding.pc = pc;
  of(view)->runner->fail(of(view), finding);
}

}  // namespace

const Hooks kHooks = {
    .access = access,
    .block_barrier = block_barrier,
    .cluster_barrier = cluster_barrier,
    .warp = warp,
    .shared = shared,
    .dynamic_shared = dynamic_shared,
    .cluster_shared = cluster_shared,
    .atomic = atomic,
    .fence = fence,
    .copy_async = copy_async,
    .copy_commit = copy_commit,
    .copy_wait = copy_wait,
    .trap = trap,
    .launch_wait = launch_wait,
    .out_of_steps = out_of_steps,
    .bad_conversion = bad_conversion,
    .bad_division = bad_division,
};

}  // namespace softgpu
