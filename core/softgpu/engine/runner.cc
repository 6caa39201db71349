// SPDX-License-Identifier: Apache-2.0
#include "runner.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "library.h"

namespace softgpu {
namespace {

constexpr size_t kChunkLanes = 1024;
constexpr size_t kGuard = 4096;  // a page without access, which catches overflows

// Maps memory for kChunkLanes fibers. A stack that overflows runs into a page without access.
char* map_chunk() {
  const size_t bytes = kChunkLanes * kLaneBytes;
  void* const at = mmap(nullptr, bytes + kLaneBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    std::fputs("softgpu: no memory for the stacks of a block's threads\n", stderr);
    std::abort();
  }
  const uintptr_t aligned =
      (reinterpret_cast<uintptr_t>(at) + kLaneBytes - 1) & ~(uintptr_t{kLaneBytes} - 1);
  char* const chunk = reinterpret_cast<char*>(aligned);
  char* const end = static_cast<char*>(at) + bytes + kLaneBytes;
  if (chunk != at) munmap(at, static_cast<size_t>(chunk - static_cast<char*>(at)));
  if (end != chunk + bytes) munmap(chunk + bytes, static_cast<size_t>(end - (chunk + bytes)));
  for (size_t i = 0; i < kChunkLanes; ++i) mprotect(chunk + i * kLaneBytes, kGuard, PROT_NONE);
  return chunk;
}

}  // namespace

Runner::~Runner() {
  for (char* chunk : chunks_) munmap(chunk, kChunkLanes * kLaneBytes);
  for (const Block& block : blocks_)
    if (block.shared_begin) {
      close_pages(block.shared_begin, kBlockShared, PageKind::kNone);
      give_back_pages(block.shared_begin, kBlockShared);
    }
}

bool Runner::run_cluster(LaunchState* state, uint64_t cluster) {
  if (record_ != state->record)
    std::fill(std::begin(ordered_chunks_), std::end(ordered_chunks_), 0);
  state_ = state;
  record_ = state->record;
  finding_ = Finding();
  random_ = Random(mix(state->seed, cluster + 1));
  const Launch& launch = *state->launch;
  width_ = launch.kernel->warp_size;
  const size_t size = size_t{launch.cluster[0]} * launch.cluster[1] * launch.cluster[2];
  cluster_size_ = size;
  const size_t threads = size_t{launch.block[0]} * launch.block[1] * launch.block[2];
  lanes_ = size * threads;
  done_ = at_cluster_barrier_ = 0;
  copies_.clear();
  steps_left_ = state->steps * size;
  while (chunks_.size() * kChunkLanes < lanes_) chunks_.push_back(map_chunk());
  if (blocks_.size() < size) blocks_.resize(size);
  for (uint32_t rank = 0; rank < size; ++rank) set_up_block(cluster, rank);
  start_lanes();
  if (ready_count_ > 0) {
    Lane* const first = ready_[ready_begin_];
    ready_begin_ = (ready_begin_ + 1) % ready_.size();
    --ready_count_;
    switch_fiber(&main_, &first->context);
  }
  if (finding_.kind == FindingKind::kNone && done_ < lanes_) finding_ = find_stuck();
  if (finding_.kind == FindingKind::kNone) {
    for (size_t i = 0; i < size && state->counting; ++i) {
      const std::lock_guard<std::mutex> lock(state->counters_mutex);
      add_counters(&state->counters, blocks_[i].counting->end());
    }
    return true;
  }
  for (size_t i = 0; i < size; ++i)
    for (Lane* lane : blocks_[i].lanes)
      if (lane->state != LaneState::kDone) forget_fiber(lane->context);
  return false;
}

void Runner::set_up_block(uint64_t cluster, uint32_t rank) {
  const Launch& launch = *state_->launch;
  Block& block = blocks_[rank];
  uint64_t across[3];  // clusters in each dimension
  for (int i = 0; i < 3; ++i) across[i] = launch.grid[i] / launch.cluster[i];
  const uint64_t at[3] = {cluster % across[0], cluster / across[0] % across[1],
                          cluster / across[0] / across[1]};
  const uint32_t within[3] = {rank % launch.cluster[0],
                              rank / launch.cluster[0] % launch.cluster[1],
                              rank / launch.cluster[0] / launch.cluster[1]};
  for (int i = 0; i < 3; ++i)
    block.index[i] = static_cast<uint32_t>(at[i] * launch.cluster[i] + within[i]);
  block.number = block.index[0] + uint64_t{launch.grid[0]} *
                                      (block.index[1] + uint64_t{launch.grid[1]} * block.index[2]);
  block.run = state_->record->first_run + static_cast<uint32_t>(block.number);
  block.epoch = block.waiting = block.done = 0;
  block.knowledge = BlockKnowledge();
  block.counting = state_->counting ? std::make_unique<BlockCounting>() : nullptr;

  const uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
  const uint32_t width = launch.kernel->warp_size;
  block.lanes.resize(threads);
  block.warps.assign((threads + width - 1) / width, Warp());
  for (uint32_t w = 0; w < block.warps.size(); ++w) {
    block.warps[w].first = w * width;
    block.warps[w].count = std::min(width, threads - w * width);
  }
  if (block.counting) block.counting->begin(static_cast<uint32_t>(block.warps.size()), width);
  if (!block.shared_begin) block.shared_begin = take_addresses(kBlockShared);
  for (const SharedArray& array : block.arrays)
    close_pages(array.begin, array.bytes, PageKind::kNone);
  block.arrays.clear();
  block.shared_used = block.static_bytes = 0;
  block.dynamic_shared = SharedArray();
  if (launch.shared_bytes) open_dynamic_shared(&block);
}

void Runner::start_lanes() {
  const Launch& launch = *state_->launch;
  const uint32_t width = launch.kernel->warp_size;
  const size_t threads = blocks_[0].lanes.size();
  order_.resize(lanes_);
  for (size_t i = 0; i < lanes_; ++i) {
    char* const memory = chunks_[i / kChunkLanes] + (i % kChunkLanes) * kLaneBytes;
    char* const place = reinterpret_cast<char*>(lane_of(reinterpret_cast<Word>(memory)));
    Lane* const lane = new (place) Lane();
    Block& block = blocks_[i / threads];
    const uint32_t number = static_cast<uint32_t>(i % threads);
    block.lanes[number] = lane;
    lane->view.thread[0] = number % launch.block[0];
    lane->view.thread[1] = number / launch.block[0] % launch.block[1];
    lane->view.thread[2] = number / launch.block[0] / launch.block[1];
    for (int d = 0; d < 3; ++d) {
      lane->view.threads[d] = launch.block[d];
      lane->view.block[d] = block.index[d];
      lane->view.blocks[d] = launch.grid[d];
    }
    lane->view.lane = number % width;
    lane->view.cluster_rank = static_cast<unsigned>(i / threads);
    lane->view.cluster_size = static_cast<unsigned>(lanes_ / threads);
    lane->view.steps_left = &steps_left_;
    lane->runner = this;
    lane->block = &block;
    lane->warp = &block.warps[number / width];
    lane->number = number;
    refresh_stamp(lane);
    char* const stack = memory + kGuard;
    prepare_fiber(&lane->context, stack, static_cast<size_t>(place - stack), lane_entry);
    order_[i] = lane;
  }
  ready_.resize(lanes_);
  ready_begin_ = ready_count_ = 0;
  push_all(order_.data(), lanes_);
}

void Runner::lane_entry() {
  Lane* const lane = reinterpret_cast<Lane*>(this_lane());
  Runner* const runner = lane->runner;
  enter_fiber(&runner->main_);
  runner->state_->run(runner->state_->params.data());
  runner->lane_done(lane);
}

void Runner::push(Lane* lane) {
  lane->state = LaneState::kReady;
  size_t at = ready_begin_ + ready_count_++;
  if (at >= ready_.size()) at -= ready_.size();
  ready_[at] = lane;
}

void Runner::push_all(Lane** lanes, size_t count) {
  random_.shuffle(lanes, count);
  for (size_t i = 0; i < count; ++i) push(lanes[i]);
}

// Makes the lanes the next ones to run, in any order.
void Runner::push_first(Lane** lanes, size_t count) {
  random_.shuffle(lanes, count);
  for (size_t i = 0; i < count; ++i) {
    lanes[i]->state = LaneState::kReady;
    ready_begin_ = (ready_begin_ ? ready_begin_ : ready_.size()) - 1;
    ready_[ready_begin_] = lanes[i];
  }
  ready_count_ += count;
}

// Removes the first ready lane, and prefetches the stack of the one after it.
Lane* Runner::next_ready() {
  Lane* const next = ready_[ready_begin_];
  if (++ready_begin_ == ready_.size()) ready_begin_ = 0;
  --ready_count_;
  const size_t after = ready_begin_ + 1 < ready_.size() ? ready_begin_ + 1 : 0;
  if (ready_count_ > 0) __builtin_prefetch(ready_[ready_begin_]->context.stack_pointer);
  if (ready_count_ > 1) {
    __builtin_prefetch(&ready_[after]->context);
    __builtin_prefetch(&ready_[after]->view);
  }
  return next;
}

void Runner::suspend(Lane* lane) {
  Context* to = &main_;
  if (ready_count_ > 0) {
    Lane* const next = next_ready();
    if (next == lane) return;
    to = &next->context;
  }
  switch_fiber(&lane->context, to);
}

void Runner::lane_done(Lane* lane) {
  settle(lane);
  lane->state = LaneState::kDone;
  ++done_;
  ++lane->block->done;
  Context* to = &main_;
  if (ready_count_ > 0) to = &next_ready()->context;
  leave_fiber(&lane->context, to);
}

void Runner::fail(Lane* lane, const Finding& finding) {
  finding_ = finding;
  finding_.lane = lane;
  state_->stop = true;
  switch_fiber(&lane->context, &main_);
  std::abort();
}

uint32_t Runner::warp_of(const Lane* lane) const {
  return lane->number / state_->launch->kernel->warp_size;
}

void Runner::launch_wait(Lane* lane) {
  settle(lane);
  lane->waited = true;
}

void Runner::out_of_steps(Lane* lane, const void* pc) {
  constexpr uint32_t kSpins = 1000;
  Finding finding;
  finding.kind = lane->spin.count >= kSpins ? FindingKind::kSpin : FindingKind::kEndless;
  finding.pc = pc;
  if (finding.kind == FindingKind::kSpin) finding.address = lane->spin.address;
  fail(lane, finding);
}

void Runner::refresh_stamp(Lane* lane) {
  lane->stamp = static_cast<Stamp>(lane->block->run) << 32 |
                static_cast<Stamp>(lane->number) << kThreadShift |
                static_cast<Stamp>(lane->block->epoch) << kBlockEpochShift |
                static_cast<Stamp>(lane->warp->epoch) << kWarpEpochShift;
}

// Gives the block another run, in which its epochs start from 0 again, because the stamp's epochs
// are used up. Accesses of the former run count as ordered before.
void Runner::renumber(Block* block) {
  block->run = further_run(state_->record, block->number);
  block->epoch = 0;
  for (Warp& warp : block->warps) warp.epoch = 0;
  for (Lane* lane : block->lanes) refresh_stamp(lane);
}

}  // namespace softgpu
