// Makes the text of a finding in a kernel.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "library.h"
#include "runner.h"
#include "settings.h"

namespace softgpu {
namespace {

std::string triple(const unsigned at[3]) {
  return "(" + std::to_string(at[0]) + ", " + std::to_string(at[1]) + ", " + std::to_string(at[2]) +
         ")";
}

std::string access_text(const Finding& finding) {
  return (finding.atomic ? std::string("atomic operation on ")
                         : std::string(finding.write ? "write of " : "read of ")) +
         std::to_string(finding.bytes) + (finding.bytes == 1 ? " byte" : " bytes");
}

std::string headline(const Finding& finding) {
  const std::string access = access_text(finding);
  switch (finding.kind) {
    case FindingKind::kNone:
      break;
    case FindingKind::kOutside:
      return "out-of-bounds " + access;
    case FindingKind::kMisaligned:
      return "misaligned " + access;
    case FindingKind::kUninitialised:
      return access + " of uninitialised memory";
    case FindingKind::kRace:
      return "race: " + access + " that another thread " +
             (finding.other_write ? "writes" : "reads") + ", without a barrier between the two";
    case FindingKind::kBlockRace:
      return "race: " + access + " that another block " +
             (finding.other_write ? "writes" : "reads") + ", which has not handed it over";
    case FindingKind::kNotFenced:
      return "race: " + access + " that another block " +
             (finding.other_write ? "writes" : "reads") +
             ", without a device_fence() after the atomic operation that took it over";
    case FindingKind::kDifferentValues:
      return access + " that another block has written with a different value";
    case FindingKind::kUnordered:
      return "stream race: " + access + " that an operation of another stream " +
             (finding.other_write ? "writes" : "reads") + ", and nothing orders the two";
    case FindingKind::kEarly:
      return "race with the launch before: " + access + " that it " +
             (finding.other_write ? "writes" : "reads") +
             ", in a programmatic launch that has not waited for it";
    case FindingKind::kReadOnly:
      return access + " in memory that is only to be read";
    case FindingKind::kOtherDevice:
      return access + " in another device's memory";
    case FindingKind::kBarrier:
      return "a barrier that not all threads of the block reach";
    case FindingKind::kBarrierSites:
      return "a barrier that the threads of the block reach at different places";
    case FindingKind::kWarp:
      return "a shuffle, vote or warp barrier that not all lanes of the warp reach: it is among "
             "inactive lanes";
    case FindingKind::kWarpSites:
      return "a shuffle, vote or warp barrier that the lanes of the warp reach at different places";
    case FindingKind::kNoSuchLane:
      return "a shuffle that takes the value of lane " + std::to_string(finding.number) +
             ", which the last warp of the block does not have";
    case FindingKind::kTooMuchShared:
      return "static shared memory of " + std::to_string(finding.bytes) + " bytes, more than the " +
             std::to_string(finding.number) + " that a block has";
    case FindingKind::kEndless:
      return "a loop without end: the block has not ended";
    case FindingKind::kSpin:
      return "a wait without end, by atomic operations that change nothing: the block has not "
             "ended";
    case FindingKind::kConversion:
      return "a floating-point number that the integer type does not hold: a GPU clamps it, and "
             "C++ leaves it open";
    case FindingKind::kDivideByZero:
      return "integer division by zero, whose result nothing defines";
    case FindingKind::kDivideOverflow:
      return "integer division that overflows: the smallest number by -1";
    case FindingKind::kTrap:
      return "the kernel stops itself: trap()";
    case FindingKind::kNoSuchBlock:
      return "shared memory of block " + std::to_string(finding.number) +
             " of the cluster, which has no such block";
    case FindingKind::kNotShared:
      return "an address that is not in the block's shared memory";
  }
  return "";
}

const char* place_of(LaneState state) {
  switch (state) {
    case LaneState::kReady:
      return "run";
    case LaneState::kAtBlockBarrier:
      return "wait at the barrier at ";
    case LaneState::kAtClusterBarrier:
      return "wait at the cluster's barrier at ";
    case LaneState::kInWarp:
      return "wait for their warp at ";
    case LaneState::kDone:
      return "have left the kernel";
  }
  return "";
}

// Returns lines such as "threads 0 to 31 wait at the barrier at x.cuh:3", one for each range of
// threads in the same state.
std::string waiting_lines(const Block& block, const KernelLibrary& library) {
  std::string text;
  size_t lines = 0;
  for (size_t i = 0; i < block.lanes.size();) {
    const Lane& first = *block.lanes[i];
    size_t end = i;
    while (end < block.lanes.size() && block.lanes[end]->state == first.state &&
           (first.state == LaneState::kDone || block.lanes[end]->pc == first.pc))
      ++end;
    if (++lines > 12) return text + "           …\n";
    const bool one = end - i == 1;
    text += std::string(lines == 1 ? "  threads  " : "           ") + std::to_string(i) +
            (one ? "" : " to " + std::to_string(end - 1)) + " " + place_of(first.state);
    if (first.state != LaneState::kDone && first.state != LaneState::kReady)
      text += source_lines(library, library.site_of(first.pc)).place;
    text += "\n";
    i = end;
  }
  return text;
}

// Describes where in the block's shared memory an address is; "" if it is not there.
std::string describe_shared(const Block& block, uintptr_t address, const KernelLibrary& library) {
  if (address - block.shared_begin >= kBlockShared) return "";
  const SharedArray* best = nullptr;
  for (const SharedArray& array : block.arrays)
    if (!best || (array.begin <= address && array.begin > best->begin)) best = &array;
  if (!best) return "shared memory, of which the launch has none";
  const std::string whose =
      std::to_string(best->bytes) + " bytes of " +
      (best->site ? "shared memory of " + source_lines(library, library.site_of(best->pc)).place
                  : std::string("dynamic shared memory"));
  if (address < best->begin)
    return std::to_string(best->begin - address) + " bytes before " + whose;
  const uint64_t at = address - best->begin;
  if (at >= best->bytes)
    return std::to_string(at - best->bytes) + " bytes after the end of " + whose;
  return "byte " + std::to_string(at) + " of " + whose;
}

}  // namespace

// Returns the lines with further facts about a finding, and with what to do.
std::string Runner::advice() const {
  switch (finding_.kind) {
    case FindingKind::kBlockRace:
      return "  rule     no barrier orders blocks. Either the one writes, calls device_fence() and "
             "does an atomic\n"
             "           operation, and the other does one at the same place, calls device_fence() "
             "and reads;\n"
             "           or the second half becomes a launch of its own\n";
    case FindingKind::kNotFenced:
      return "  rule     who takes does the atomic operation, calls device_fence(), then reads\n";
    case FindingKind::kUnordered:
      return "  rule     let the one stream wait for an event that is recorded on the other\n";
    case FindingKind::kEarly:
      return "  rule     call launch_wait() before the first access to what the launch before "
             "uses\n";
    case FindingKind::kEndless:
    case FindingKind::kSpin:
      break;
    default:
      return "";
  }
  std::string text = "  steps    " + std::to_string(state_->steps) +
                     ", the budget of each block of a launch (\"steps\" of OPDOCK_SOFTGPU)\n";
  const uint64_t begun = std::min<uint64_t>(state_->next, state_->clusters);
  if (finding_.kind == FindingKind::kSpin && begun < state_->clusters)
    text += "  blocks   " + std::to_string((state_->clusters - begun) * cluster_size_) + " of " +
            std::to_string(state_->clusters * cluster_size_) +
            " have not begun. Blocks run in any order and only some of them at a time:\n"
            "           none may wait for one that is not resident\n";
  return text;
}

std::string Runner::describe() const {
  const KernelLibrary& library = *state_->library;
  const Launch& launch = *state_->launch;
  std::vector<std::string> pending;
  if (finding_.kind == FindingKind::kUninitialised)
    pending = pending_writes(*state_->operation, finding_.address);
  std::string text = "softgpu: ";
  text += pending.empty() ? headline(finding_)
                          : "stream race: " + access_text(finding_) +
                                " that nobody has written yet, and nothing orders it after an "
                                "operation of another stream that may";
  text += "\n";
  const SourceLines lines = source_lines(library, library.site_of(finding_.pc));
  text += "  at       " + lines.place;
  for (size_t i = 0; i < lines.callers.size(); ++i)
    text += (i == 0 ? " " : "\n           ") + lines.callers[i];
  text += "\n  kernel   " + launch.kernel->expression;
  if (const Lane* lane = finding_.lane) {
    text += ", block " + triple(lane->view.block) + ", thread " + triple(lane->view.thread) +
            " (lane " + std::to_string(lane->view.lane) + " of a warp of " +
            std::to_string(launch.kernel->warp_size) + ")";
  }
  text += "\n";
  if (finding_.address || finding_.kind == FindingKind::kOutside) {
    std::string where;
    for (size_t i = 0; i < cluster_size_ && where.empty(); ++i)
      where = describe_shared(blocks_[i], finding_.address, library);
    if (where.empty()) where = describe_memory(finding_.address, finding_.bytes);
    text += "  memory   " + where + "\n";
  }
  for (const std::string& other : pending) text += "  other    " + other + ", which is not done\n";
  if (finding_.kind == FindingKind::kReadOnly) {
    Access access;
    access.address = finding_.address;
    access.bytes = finding_.bytes;
    if (const ReadOnly* range = read_only_at(access)) text += "  which is " + range->what + "\n";
  }
  if (finding_.other)
    text +=
        "  other    " + describe_stamp(finding_.other, finding_.other_site, state_->record) + "\n";
  const FindingKind kind = finding_.kind;
  if (const AsyncCopy* copy = copy_under_way(finding_.address, finding_.bytes);
      copy && kind == FindingKind::kUninitialised)
    text += "  copy     an asynchronous copy to there, of " +
            source_lines(library, library.site_of(copy->pc)).place + ", was not waited for\n";
  if (finding_.lane && (kind == FindingKind::kBarrier || kind == FindingKind::kWarp))
    text += waiting_lines(*finding_.lane->block, library);
  if (!state_->operation->what.empty()) text += "  launch   " + state_->operation->what + "\n";
  text += advice();
  text += "  again    the same order of blocks and threads: seed " +
          std::to_string(current_settings().seed) + "\n";
  return text;
}

}  // namespace softgpu
