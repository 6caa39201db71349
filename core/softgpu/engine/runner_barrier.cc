// The places where threads wait for each other: barriers and operations of a warp.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "library.h"
#include "runner.h"

namespace softgpu {

// A source line can be compiled to several instructions; threads at any of them are at the same
// place.
bool Runner::same_place(const void* a, const void* b) {
  if (a == b) return true;
  const KernelLibrary& library = *state_->library;
  return source_lines(library, library.site_of(a)) == source_lines(library, library.site_of(b));
}

void Runner::block_barrier(Lane* lane, const void* pc) {
  settle(lane);
  Block* const block = lane->block;
  lane->pc = pc;
  lane->state = LaneState::kAtBlockBarrier;
  if (++block->waiting == block->lanes.size()) {
    for (Lane* other : block->lanes) {
      if (same_place(pc, other->pc)) continue;
      Finding finding;
      finding.kind = FindingKind::kBarrierSites;
      finding.pc = pc;
      finding.other_site = state_->library->site_of(other->pc);
      finding.other = other->stamp;
      fail(lane, finding);
    }
    release_block(block);
  }
  suspend(lane);
}

void Runner::release_block(Block* block) {
  block->knowledge.pass_block_barrier();
  pass_waited(block);
  if (block->counting) block->counting->barrier();
  block->waiting = 0;
  for (Warp& warp : block->warps) warp.epoch = 0;
  if (block->epoch++ == kMaxBlockEpoch) renumber(block);
  for (Lane* lane : block->lanes) refresh_stamp(lane);
  order_.assign(block->lanes.begin(), block->lanes.end());
  push_all(order_.data(), order_.size());
}

// If one thread has waited for the earlier operations, so have all threads that meet it at a
// barrier.
void Runner::pass_waited(Block* block) {
  const auto waited = [](const Lane* lane) { return lane->waited; };
  if (state_->operation->early == 0 ||
      std::none_of(block->lanes.begin(), block->lanes.end(), waited))
    return;
  for (Lane* lane : block->lanes) lane->waited = true;
}

void Runner::cluster_barrier(Lane* lane, const void* pc) {
  settle(lane);
  lane->pc = pc;
  lane->state = LaneState::kAtClusterBarrier;
  if (++at_cluster_barrier_ == lanes_) {
    at_cluster_barrier_ = 0;
    order_.clear();
    for (size_t i = 0; i < cluster_size_; ++i) {
      blocks_[i].knowledge.pass_block_barrier();
      pass_waited(&blocks_[i]);
      renumber(&blocks_[i]);
      order_.insert(order_.end(), blocks_[i].lanes.begin(), blocks_[i].lanes.end());
    }
    push_all(order_.data(), order_.size());
  }
  suspend(lane);
}

uint64_t Runner::warp(Lane* lane, WarpOp op, uint64_t value, int argument, const void* pc) {
  settle(lane);
  Warp* const warp = lane->warp;
  lane->pc = pc;
  lane->state = LaneState::kInWarp;
  lane->warp_op = op;
  lane->warp_value = value;
  lane->warp_argument = argument;
  if (++warp->waiting == warp->count) {
    Lane** const lanes = lane->block->lanes.data() + warp->first;
    for (uint32_t i = 0; i < warp->count; ++i) {
      if (lanes[i]->warp_op == op && same_place(pc, lanes[i]->pc)) continue;
      Finding finding;
      finding.kind = FindingKind::kWarpSites;
      finding.pc = pc;
      finding.other_site = state_->library->site_of(lanes[i]->pc);
      finding.other = lanes[i]->stamp;
      fail(lane, finding);
    }
    finish_warp(warp, lanes);
  }
  suspend(lane);
  if (lane->warp_argument < 0 && lane->warp_op == WarpOp::kShuffle) {
    Finding finding;
    finding.kind = FindingKind::kNoSuchLane;
    finding.pc = pc;
    finding.number = ~lane->warp_argument;
    fail(lane, finding);
  }
  return lane->warp_result;
}

// Completes an operation that all lanes of the warp have reached.
void Runner::finish_warp(Warp* warp, Lane** lanes) {
  warp->waiting = 0;
  if (BlockCounting* counting = lanes[0]->block->counting.get())
    counting->warp_operation(lanes[0]->warp_op == WarpOp::kBarrier);
  const int width = static_cast<int>(state_->launch->kernel->warp_size);
  const int count = static_cast<int>(warp->count);
  const WarpOp op = lanes[0]->warp_op;
  uint64_t votes = 0;
  for (int i = 0; i < count; ++i) votes |= static_cast<uint64_t>(lanes[i]->warp_value != 0) << i;
  const uint64_t all = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
  for (int i = 0; i < count; ++i) {
    Lane* const lane = lanes[i];
    int from = -1;
    switch (op) {
      case WarpOp::kBarrier:
        break;
      case WarpOp::kAny:
        lane->warp_result = votes != 0;
        break;
      case WarpOp::kAll:
        lane->warp_result = votes == all;
        break;
      case WarpOp::kBallot:
        lane->warp_result = votes;
        break;
      case WarpOp::kShuffle:
        from = lane->warp_argument & (width - 1);
        break;
      case WarpOp::kShuffleXor:
        from = (i ^ lane->warp_argument) & (width - 1);
        break;
      case WarpOp::kShuffleUp:
        from = i >= lane->warp_argument ? i - lane->warp_argument : i;
        break;
      case WarpOp::kShuffleDown:
        from = i + lane->warp_argument < width ? i + lane->warp_argument : i;
        break;
    }
    if (from < 0) continue;
    if (from < count) {
      lane->warp_result = lanes[from]->warp_value;
      lane->warp_argument = 0;
    } else {  // the lane reports it when it continues
      lane->warp_op = WarpOp::kShuffle;
      lane->warp_argument = ~from;
    }
  }
  if (op == WarpOp::kBarrier) {
    lanes[0]->block->knowledge.pass_warp_barrier(warp_of(lanes[0]), warp->first, warp->count);
    if (warp->epoch++ == kMaxWarpEpoch) renumber(lanes[0]->block);
    for (int i = 0; i < count; ++i) refresh_stamp(lanes[i]);
  }
  order_.assign(lanes, lanes + count);
  // Usually the same warp continues, because its stacks are in the CPU's cache. Sometimes all other
  // threads run first, so that no warp waits forever for another one, and the order varies.
  if (random_.below(8) == 0)
    push_all(order_.data(), order_.size());
  else
    push_first(order_.data(), order_.size());
}

// Finds the reason why no thread can continue: one waits for another that will not come.
Finding Runner::find_stuck() {
  Finding finding;
  for (size_t i = 0; i < cluster_size_; ++i) {
    for (Lane* lane : blocks_[i].lanes) {
      if (lane->state == LaneState::kDone) continue;
      // A lane that waits for its warp explains more than one that waits at a barrier.
      if (finding.lane && lane->state != LaneState::kInWarp) continue;
      finding.lane = lane;
      finding.pc = lane->pc;
      finding.kind = lane->state == LaneState::kInWarp ? FindingKind::kWarp : FindingKind::kBarrier;
      if (finding.kind == FindingKind::kWarp) return finding;
    }
    if (finding.lane) return finding;
  }
  return finding;
}

}  // namespace softgpu
