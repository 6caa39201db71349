// SPDX-License-Identifier: Apache-2.0
#include "worker.h"

#include <algorithm>

#include "file.h"

namespace async_io {
namespace {

thread_local const Core* core_of_thread = nullptr;

}  // namespace

Worker::Worker(Core* core, Ring* ring) : core_(core), ring_(ring) {
  const uint32_t depth = ring == nullptr ? 1 : core->options.queue_depth;
  pieces_.resize(depth);
  ended_.resize(depth);
  taken_.resize(depth);
  ringed_.resize(depth);
  for (uint32_t slot = 0; slot < depth; ++slot) free_.push_back(slot);
  free_count_ = depth;
}

void Worker::work() {
  core_of_thread = core_;
  while (step()) {
  }
}

bool Core::is_own_thread() const {
  return core_of_thread == this;
}

bool Worker::step() {
  Job* unopened = nullptr;
  {
    std::unique_lock lock(core_->mutex);
    if (in_flight_ == 0) {
      core_->work.value.wait(lock, [&] { return core_->first != nullptr || core_->is_stopping; });
      if (core_->first == nullptr) return false;
    }
    if (in_flight_ == 0 || core_->options.overlap_events) unopened = take_blocks();
  }
  const bool is_idle = unopened == nullptr && taken_count_ == 0;
  if (unopened != nullptr) open(unopened);
  hand_over();
  // While a thread waits for its blocks in flight it sees no new jobs. These are for the other
  // threads, and for this one when its first block has ended.
  if (in_flight_ > 0) reap(is_idle || free_count_ == 0);
  return true;
}

// Fills free slots, or returns a job that must be opened first. The core's mutex must be held.
Job* Worker::take_blocks() {
  const uint64_t block = core_->options.block_size;
  while (core_->first != nullptr && free_count_ > 0) {
    Job* job = core_->first;
    if (!job->is_open) {
      if (taken_count_ > 0) return nullptr;
      core_->remove(job);
      return job;
    }
    // Takes its share of the remaining blocks, so that other threads find some too, but only one
    // block at a time if this thread has to wait for it.
    const bool is_waited_for = ring_ == nullptr || !job->is_direct;
    const uint64_t left = (job->blocks_end - job->next + block - 1) / block;
    const uint64_t share = (left + core_->options.num_threads - 1) / core_->options.num_threads;
    uint64_t count = std::min<uint64_t>(is_waited_for ? 1 : share, free_count_);
    for (; count > 0; --count) {
      // Blocks end at multiples of the block size in the file.
      const uint64_t offset = job->request.offset + job->next;
      const uint64_t bytes = std::min(block - offset % block, job->blocks_end - job->next);
      const uint32_t slot = free_[--free_count_];
      taken_[taken_count_++] = slot;
      pieces_[slot] = {job, job->next, bytes};
      job->next += bytes;
      ++job->in_flight;
    }
    if (job->next == job->blocks_end) core_->remove(job);
    if (is_waited_for) return nullptr;
  }
  return nullptr;
}

void Worker::open(Job* job) {
  const Failure failure = open_file(job);
  bool has_blocks;
  {
    std::lock_guard lock(core_->mutex);
    job->failure = failure;
    job->is_open = true;
    has_blocks = !failure && job->next < job->blocks_end;
    if (has_blocks) core_->push_front(job);
  }
  if (has_blocks)
    core_->work.value.notify_all();
  else
    finish(job);
}

void Worker::hand_over() {
  uint32_t to_ring = 0;
  for (uint32_t i = 0; i < taken_count_; ++i) {
    if (ring_ != nullptr && pieces_[taken_[i]].job->is_direct) ringed_[to_ring++] = taken_[i];
  }
  const uint32_t handed = hand_to_ring(to_ring);
  in_flight_ += handed;
  // This thread transfers the rest itself, while the kernel works on those that were handed over.
  for (uint32_t i = 0, in_ring = 0; i < taken_count_; ++i) {
    if (in_ring < handed && ringed_[in_ring] == taken_[i])
      ++in_ring;
    else
      settle(taken_[i], 0);
  }
  taken_count_ = 0;
}

uint32_t Worker::hand_to_ring(uint32_t count) {
  if (count == 0) return 0;
  if (!core_->options.single_submit) return ring_->submit(ringed_.data(), count, pieces_.data());
  uint32_t handed = 0;
  while (handed < count && ring_->submit(&ringed_[handed], 1, pieces_.data()) == 1) ++handed;
  return handed;
}

void Worker::reap(bool wait) {
  const uint32_t count = ring_->reap(ended_.data(), static_cast<uint32_t>(ended_.size()), wait);
  in_flight_ -= count;
  for (uint32_t i = 0; i < count; ++i) settle(ended_[i].slot, ended_[i].result);
}

// Records that a block has ended. First transfers what is missing by plain system calls: they
// report the real error if there is one, and a block that was only interrupted succeeds.
void Worker::settle(uint32_t slot, int64_t result) {
  const Piece piece = pieces_[slot];
  free_[free_count_++] = slot;
  Job* job = piece.job;
  const uint64_t done = result > 0 ? static_cast<uint64_t>(result) : 0;
  const Failure failure = transfer(job, piece.position + done, piece.bytes - done);
  bool is_last;
  {
    std::lock_guard lock(core_->mutex);
    if (!failure) {
      (job->is_direct ? core_->totals.direct : core_->totals.buffered) += piece.bytes;
    } else {
      if (!job->failure) job->failure = failure;
      job->next = job->blocks_end;
      core_->remove(job);
    }
    --job->in_flight;
    is_last = job->in_flight == 0 && job->next == job->blocks_end;
  }
  if (is_last) finish(job);
}

// Ends a job that no other thread works on any more.
void Worker::finish(Job* job) {
  const Failure failure = finish_file(job, job->failure);
  if (job->request.done != nullptr) job->request.done(job->request.context);
  {
    std::lock_guard lock(core_->mutex);
    if (!failure)
      core_->totals.buffered += job->request.bytes - (job->blocks_end - job->blocks_begin);
    job->failure = failure;
    job->has_ended = true;  // from here on another thread may wait for the job and delete it
  }
  core_->ended.value.notify_all();
}

}  // namespace async_io
