// SPDX-License-Identifier: Apache-2.0
#include "handover.h"

namespace softgpu {
namespace {

// Returns whether `past`, of the same block, comes before the fence in program order or by a
// barrier.
bool comes_before(const Past& past, const Fence& fence, uint32_t width) {
  if (past.fences >= fence.number) return false;
  const Stamp a = past.stamp, b = fence.stamp;
  if (run_of(a) != run_of(b)) return run_of(a) < run_of(b);
  if (block_epoch_of(a) != block_epoch_of(b)) return block_epoch_of(a) < block_epoch_of(b);
  if (thread_of(a) == thread_of(b)) return true;
  return thread_of(a) / width == thread_of(b) / width && warp_epoch_of(a) < warp_epoch_of(b);
}

// Later fences replace earlier ones, because a barrier lies between them.
void replace_fences(Knowledge* all, const Fences& later) {
  if (!later.empty()) all->fenced = std::make_shared<const Fences>(later);
}

void append(Fences* to, const Knowledge& from) {
  if (from.fenced) to->insert(to->end(), from.fenced->begin(), from.fenced->end());
}

}  // namespace

void BlockKnowledge::fence(uint32_t lane, uint32_t warp, Stamp stamp) {
  Knowledge& own = lanes[lane];
  for (const Knowledge* each : of(lane, warp)) own.known.add(each->taken);
  own.taken.clear();
  own.fenced = std::make_shared<const Fences>(Fences{{stamp, ++fences}});
}

void BlockKnowledge::pass_warp_barrier(uint32_t warp, uint32_t first, uint32_t count) {
  const auto begin = lanes.lower_bound(first), end = lanes.lower_bound(first + count);
  if (begin == end) return;
  Knowledge& all = warps[warp];
  Fences later;
  for (auto at = begin; at != end; ++at) {
    all.join(at->second);
    append(&later, at->second);
  }
  replace_fences(&all, later);
  lanes.erase(begin, end);
}

void BlockKnowledge::pass_block_barrier() {
  Fences later;
  for (const auto* circles : {&warps, &lanes}) {
    for (const auto& [number, knowledge] : *circles) {
      block.join(knowledge);
      append(&later, knowledge);
    }
  }
  replace_fences(&block, later);
  warps.clear();
  lanes.clear();
}

std::vector<const Knowledge*> BlockKnowledge::of(uint32_t lane, uint32_t warp) const {
  std::vector<const Knowledge*> all;
  if (const auto own = lanes.find(lane); own != lanes.end()) all.push_back(&own->second);
  if (const auto found = warps.find(warp); found != warps.end()) all.push_back(&found->second);
  all.push_back(&block);
  return all;
}

bool Handover::take(uintptr_t address, IdSet* taken) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = announced_.find(address);
  if (found == announced_.end()) return false;
  *taken = found->second;
  return true;
}

void Handover::announce(uintptr_t address, uint64_t block,
                        const std::vector<const Knowledge*>& knowledge) {
  const auto own = std::find_if(knowledge.begin(), knowledge.end(),
                                [](const Knowledge* each) { return each->fenced != nullptr; });
  if (own == knowledge.end()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Announcement>& announcements = of_block_[block];
  if (announcements.empty() || announcements.back().fences != (*own)->fenced)
    announcements.push_back({ids_++, (*own)->fenced});
  IdSet& there = announced_[address];
  for (const Knowledge* each : knowledge) there.add(each->known);
  there.add(announcements.back().id);
}

bool Handover::covers(const std::vector<const IdSet*>& sets, uint64_t block, const Past& past,
                      uint32_t width) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = of_block_.find(block);
  if (found == of_block_.end()) return false;
  for (const Announcement& each : found->second) {
    const bool has =
        std::any_of(sets.begin(), sets.end(), [&](const IdSet* set) { return set->has(each.id); });
    if (!has) continue;
    if (past.stamp & kAtomic) return true;  // it may itself be the operation that announced
    for (const Fence& fence : *each.fences)
      if (comes_before(past, fence, width)) return true;
  }
  return false;
}

}  // namespace softgpu
