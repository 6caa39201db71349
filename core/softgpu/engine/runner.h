// Executes one block, or the blocks of one cluster, on the calling thread. The threads of the
// blocks are fibers that run in turn, in an order that a seed decides.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine.h"
#include "finding.h"
#include "handover.h"
#include "lane.h"
#include "operations.h"
#include "random.h"

namespace softgpu {

// A launch during its execution by one or several runners.
struct LaunchState {
  const Operation* operation = nullptr;
  const Launch* launch = nullptr;
  OperationRecord* record = nullptr;
  KernelLibrary* library = nullptr;
  void (*run)(void* const*) = nullptr;
  std::vector<void*> params;  // pointers into launch->args
  uint64_t seed = 0;          // for this launch
  uint64_t clusters = 0;
  std::vector<uint32_t> order;  // the order in which clusters run
  std::atomic<uint64_t> next{0};
  std::atomic<bool> stop{false};  // there was a finding
  Handover handover;
  bool counting = false;
  unsigned workers = 1;
  uint64_t steps = 0;  // Settings::steps
  // The operation's ranges, and memory that the kernel gets only as const.
  std::vector<ReadOnly> read_only;
  std::mutex counters_mutex;
  Counters counters;
};

// One access of one thread, or the part of it in one page.
struct Access {
  uintptr_t address = 0;
  uint64_t bytes = 0;
  bool write = false;
  bool atomic = false;
  bool aligned = false;  // must be aligned to its size
  bool counted = true;   // as a request of its warp
  const void* pc = nullptr;
};

// An asynchronous copy that has not arrived.
struct AsyncCopy {
  uintptr_t to = 0, from = 0;
  const void* pc = nullptr;
  bool committed = false;
  unsigned group = 0;
};

constexpr uint64_t kBlockShared = uint64_t{2} << 20;  // bytes of addresses per running block

class Runner {
 public:
  Runner() = default;
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Executes the cluster with this number. Returns false if there was a finding, which finding()
  // returns.
  bool run_cluster(LaunchState* state, uint64_t cluster);
  const Finding& finding() const { return finding_; }
  // Returns the text of a report about the finding.
  std::string describe() const;

  // ---- implementations of the hooks; called on a fiber

  void block_barrier(Lane* lane, const void* pc);
  void cluster_barrier(Lane* lane, const void* pc);
  uint64_t warp(Lane* lane, WarpOp op, uint64_t value, int argument, const void* pc);
  void* shared(Lane* lane, const void* site, uint64_t bytes, uint64_t alignment, const void* pc);
  void* cluster_shared(Lane* lane, const void* address, unsigned rank, const void* pc);
  uint64_t atomic(Lane* lane, AtomicOp op, uintptr_t address, unsigned bytes, uint64_t value,
                  uint64_t expected, const void* pc);
  void fence(Lane* lane);
  // From now on the results of all earlier operations of the stream are available to the thread.
  void launch_wait(Lane* lane);
  // Reports that the block has used up its steps.
  [[noreturn]] void out_of_steps(Lane* lane, const void* pc);
  void copy_async(Lane* lane, uintptr_t to, uintptr_t from, const void* pc);
  void copy_commit(Lane* lane);
  void copy_wait(Lane* lane, unsigned left);
  // Checks every load and store; fails if it is not allowed.
  void access(Lane* lane, const Access& access);
  // Checks the thread's pending store, if there is one.
  void settle(Lane* lane);
  // Reports a finding; the calling thread does not continue.
  [[noreturn]] void fail(Lane* lane, const Finding& finding);

  LaunchState* state() { return state_; }

 private:
  static void lane_entry();
  void set_up_block(uint64_t cluster, uint32_t rank);
  void open_dynamic_shared(Block* block);
  void start_lanes();
  void push(Lane* lane);
  void push_all(Lane** lanes, size_t count);
  void push_first(Lane** lanes, size_t count);
  Lane* next_ready();
  void suspend(Lane* lane);  // until another thread pushes it
  void lane_done(Lane* lane);
  void release_block(Block* block);
  void finish_warp(Warp* warp, Lane** lanes);
  void refresh_stamp(Lane* lane);
  void renumber(Block* block);
  bool same_place(const void* a, const void* b);
  Finding find_stuck();
  [[noreturn]] void fail_outside(Lane* lane, uintptr_t address, uint64_t bytes, bool write,
                                 const void* pc);
  void count(Lane* lane, const Access& access, bool global);
  bool owns_shared(const Lane* lane, uintptr_t address) const;
  bool may_read(uintptr_t address, uint64_t bytes) const;
  void access_part(Lane* lane, const Access& access, const Access& part);
  bool access_cells(Lane* lane, Page* page, uint32_t offset, const Access& part);
  bool check_write(Lane* lane, Cell* cell, const Access& access);
  bool check_read(Lane* lane, Cell* cell, const Access& access);
  bool found(FindingKind kind, const Access& access, Stamp other, uint32_t site, bool other_write);
  // Makes a finding about an access of another operation.
  bool found_unordered(const Access& access, Stamp other, uint32_t site, bool other_write);
  // Makes a finding about an access of another block that was not handed over to `lane`.
  bool found_between_blocks(const Lane* lane, const Access& access, const Past& past, uint32_t site,
                            bool other_write);
  void await_value(Lane* lane, const Access& access, FindingKind kind, const Cell& cell);
  bool ordered_before_launch(const Lane* lane, Stamp stamp);
  bool other_block(const Lane* lane, const Past& past);
  bool covers(const Lane* lane, const Past& past, bool taken);
  uint32_t warp_of(const Lane* lane) const;
  void notice_spin(Lane* lane, uintptr_t address, uint64_t value);
  void pass_waited(Block* block);
  const ReadOnly* read_only_at(const Access& access) const;
  std::string advice() const;
  // Returns the array of `block` that is declared at a site; null if the block has not reached it.
  static SharedArray* array_of(Block* block, const void* site);
  const AsyncCopy* copy_under_way(uintptr_t address, uint64_t bytes) const;

  LaunchState* state_ = nullptr;
  const OperationRecord* record_ = nullptr;  // the state's; every launch has its own
  const Arena& arena_ = arena();
  uint32_t width_ = 32;        // of a warp
  std::vector<char*> chunks_;  // memory for kChunkLanes fibers each
  size_t lanes_ = 0, cluster_size_ = 0;
  std::vector<Block> blocks_;
  std::vector<Lane*> ready_;  // a ring buffer
  size_t ready_begin_ = 0, ready_count_ = 0;
  std::vector<Lane*> order_;  // scratch
  Context main_;
  Random random_;
  Finding finding_;
  size_t done_ = 0;
  size_t at_cluster_barrier_ = 0;
  uint64_t steps_left_ = 0;
  std::unordered_map<const Lane*, std::vector<AsyncCopy>> copies_;
  uint32_t ordered_chunks_[64] = {};  // chunks of runs ordered before the launch
};

}  // namespace softgpu
