// The checks of each load and store of a kernel.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "library.h"
#include "runner.h"

namespace softgpu {

void Runner::access(Lane* lane, const Access& access) {
  if (lane->pending.bytes) settle(lane);
  if (access.aligned && (access.address & (access.bytes - 1))) {
    found(FindingKind::kMisaligned, access, 0, 0, false);
    fail(lane, finding_);
  }
  if ((access.address & (kPageBytes - 1)) + access.bytes <= kPageBytes) {
    access_part(lane, access, access);
    return;
  }
  Access part = access;
  for (uint64_t done = 0; done < access.bytes; done += part.bytes) {
    part.address = access.address + done;
    part.bytes =
        std::min<uint64_t>(access.bytes - done, kPageBytes - (part.address & (kPageBytes - 1)));
    access_part(lane, access, part);
  }
}

// part: the bytes of the access that lie in one page.
void Runner::access_part(Lane* lane, const Access& access, const Access& part) {
  if (!arena_.contains(part.address)) {
    if (!access.write && may_read(part.address, part.bytes)) return;
    fail_outside(lane, access.address, access.bytes, access.write, access.pc);
  }
  const uint32_t offset = part.address & (kPageBytes - 1);
  Page& page = arena_.page(part.address);
  const bool global = page.kind == PageKind::kGlobal;
  if (offset < page.begin || offset + part.bytes > page.end ||
      (page.kind == PageKind::kShared && !owns_shared(lane, part.address)))
    fail_outside(lane, access.address, access.bytes, access.write, access.pc);
  bool good = true;
  if (global && page.device != record_->device) {
    good = found(FindingKind::kOtherDevice, part, 0, 0, false);
  } else if (part.write && read_only_at(part)) {
    good = found(FindingKind::kReadOnly, part, 0, 0, false);
  } else {
    // Shared memory needs no lock: only the thread that executes the cluster's blocks touches it.
    const PageLock lock(global ? &page : nullptr);
    good = access_cells(lane, &page, offset, part);
  }
  if (!good) fail(lane, finding_);
  if (lane->block->counting && part.address == access.address && access.counted)
    count(lane, access, global);
}

bool Runner::access_cells(Lane* lane, Page* page, uint32_t offset, const Access& part) {
  Cell* cells = arena_.cells_of(part.address);
  if ((offset | part.bytes) & ((uint64_t{1} << page->cell_shift) - 1))
    refine(page, cells, offset, part.bytes);
  const size_t first = offset >> page->cell_shift;
  const size_t last = (offset + part.bytes - 1) >> page->cell_shift;
  if (page->cell_shift == kPageShift) cells = &page->whole;
  Cell before;
  for (size_t i = first; i <= last; ++i) {
    Cell& cell = cells[i];
    // A cell with the same history as its left neighbour gets the same result.
    if (i > first && cell == before) {
      cell = cells[i - 1];
      continue;
    }
    if (first != last) before = cell;
    if (!(part.write ? check_write(lane, &cell, part) : check_read(lane, &cell, part)))
      return false;
  }
  return true;
}

void Runner::count(Lane* lane, const Access& access, bool global) {
  const RequestKind kind = access.atomic ? RequestKind::kAtomic
                           : access.write
                               ? (global ? RequestKind::kGlobalStore : RequestKind::kSharedStore)
                               : (global ? RequestKind::kGlobalLoad : RequestKind::kSharedLoad);
  lane->block->counting->access(lane->number / state_->launch->kernel->warp_size, lane->view.lane,
                                access.pc, kind, access.address, access.bytes);
}

// Returns the range that makes this memory read-only; NULL if there is none.
const ReadOnly* Runner::read_only_at(const Access& access) const {
  for (const ReadOnly& range : state_->read_only)
    if (access.address < range.begin + range.bytes && range.begin < access.address + access.bytes)
      return &range;
  return nullptr;
}

// Returns whether this is memory outside the arena that a kernel may read: its constants and
// parameters.
bool Runner::may_read(uintptr_t address, uint64_t bytes) const {
  if (state_->library->contains(address)) return true;
  for (const std::vector<uint8_t>& arg : state_->launch->args) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(arg.data());
    if (address >= begin && address + bytes <= begin + arg.size()) return true;
  }
  return false;
}

// Returns whether this is shared memory of the lane's own block, or of another block of the cluster
// that has not ended.
bool Runner::owns_shared(const Lane* lane, uintptr_t address) const {
  if (address - lane->block->shared_begin < kBlockShared) return true;
  for (size_t i = 0; i < cluster_size_; ++i)
    if (address - blocks_[i].shared_begin < kBlockShared)
      return blocks_[i].done < blocks_[i].lanes.size();
  return false;
}

bool Runner::found(FindingKind kind, const Access& access, Stamp other, uint32_t site,
                   bool other_write) {
  finding_ = Finding();
  finding_.kind = kind;
  finding_.pc = access.pc;
  finding_.address = access.address;
  finding_.bytes = access.bytes;
  finding_.write = access.write;
  finding_.atomic = access.atomic;
  finding_.other = other;
  finding_.other_site = site;
  finding_.other_write = other_write;
  return false;
}

void Runner::fail_outside(Lane* lane, uintptr_t address, uint64_t bytes, bool write,
                          const void* pc) {
  Access access;
  access.address = address;
  access.bytes = bytes;
  access.write = write;
  access.pc = pc;
  found(FindingKind::kOutside, access, 0, 0, false);
  fail(lane, finding_);
}

namespace {

// width: of a warp, a power of two.
bool same_warp(uint32_t thread, uint32_t other, uint32_t width) {
  return ((thread ^ other) & ~(width - 1)) == 0;
}

// Returns whether `stamp` belongs to another thread of the block and no barrier orders it before
// `own`.
bool concurrent(Stamp stamp, Stamp own, uint32_t width) {
  const uint32_t thread = thread_of(stamp), mine = thread_of(own);
  if (thread == mine || block_epoch_of(stamp) != block_epoch_of(own)) return false;
  return !same_warp(thread, mine, width) || warp_epoch_of(stamp) == warp_epoch_of(own);
}

// Does the same for all threads that have read a cell; `stamp` is the last one.
bool concurrent_readers(Stamp stamp, Stamp own, uint32_t width) {
  if (block_epoch_of(stamp) != block_epoch_of(own)) return false;
  if (stamp & kManyWarps) return true;
  if (!same_warp(thread_of(stamp), thread_of(own), width)) return true;
  if (warp_epoch_of(stamp) != warp_epoch_of(own)) return false;
  return (stamp & kManyLanes) || thread_of(stamp) != thread_of(own);
}

Stamp with_reader(Stamp readers, Stamp own, uint32_t width, bool atomic) {
  Stamp flags = atomic ? kAtomic : 0;
  if (run_of(readers) == run_of(own) && block_epoch_of(readers) == block_epoch_of(own)) {
    flags &= readers;
    flags |= readers & (kManyLanes | kManyWarps);
    if (!same_warp(thread_of(readers), thread_of(own), width)) {
      flags = (flags | kManyWarps) & ~kManyLanes;
    } else if (warp_epoch_of(readers) != warp_epoch_of(own)) {
      flags &= ~kManyLanes;
    } else if (thread_of(readers) != thread_of(own)) {
      flags |= kManyLanes;
    }
  }
  return own | flags;
}

}  // namespace

// Returns whether the stamp's operation was complete when the launch began, or this thread has
// waited for it.
bool Runner::ordered_before_launch(const Lane* lane, Stamp stamp) {
  const uint32_t chunk = run_of(stamp) >> 8;
  if (ordered_chunks_[chunk % 64] == chunk) return true;
  const OperationRecord* const record = operation_of_run(run_of(stamp));
  if (record == state_->record || !ordered_before(*record, *state_->operation)) return false;
  if (may_be_under_way(*record, *state_->operation)) return lane->waited;
  ordered_chunks_[chunk % 64] = chunk;
  return true;
}

// Returns whether the stamp belongs to another block of this launch and nothing orders it before
// now.
bool Runner::other_block(const Lane* lane, const Past& past) {
  const uint64_t block = state_->record->block_of(run_of(past.stamp));
  if (block == lane->block->number) return false;
  // A cluster's barrier gives its blocks new runs, so the old run's accesses are ordered before it.
  for (size_t i = 0; i < cluster_size_; ++i)
    if (blocks_[i].number == block && blocks_[i].run != run_of(past.stamp)) return false;
  return !covers(lane, past, false);
}

// Returns whether the access was handed over to the thread. taken: ignores that a fence is missing.
bool Runner::covers(const Lane* lane, const Past& past, bool taken) {
  std::vector<const IdSet*> sets;
  for (const Knowledge* each : lane->block->knowledge.of(lane->number, warp_of(lane)))
    sets.push_back(taken ? &each->taken : &each->known);
  return state_->handover.covers(sets, state_->record->block_of(run_of(past.stamp)), past,
                                 state_->launch->kernel->warp_size);
}

bool Runner::found_unordered(const Access& access, Stamp other, uint32_t site, bool other_write) {
  const OperationRecord& record = *operation_of_run(run_of(other));
  const bool early = ordered_before(record, *state_->operation);
  return found(early ? FindingKind::kEarly : FindingKind::kUnordered, access, other, site,
               other_write);
}

bool Runner::found_between_blocks(const Lane* lane, const Access& access, const Past& past,
                                  uint32_t site, bool other_write) {
  const FindingKind kind =
      covers(lane, past, true) ? FindingKind::kNotFenced : FindingKind::kBlockRace;
  return found(kind, access, past.stamp, site, other_write);
}

bool Runner::check_read(Lane* lane, Cell* cell, const Access& access) {
  const Stamp own = lane->stamp;
  const uint32_t width = width_;
  const Stamp write = cell->write;
  if (write == 0) return found(FindingKind::kUninitialised, access, 0, 0, false);
  if ((write ^ own) >> kThreadShift != 0) {  // another thread's write
    if (run_of(write) == run_of(own)) {
      if (concurrent(write, own, width) && !(access.atomic && (write & kAtomic)))
        return found(FindingKind::kRace, access, write, cell->write_site, true);
    } else if (!ordered_before_launch(lane, write)) {
      if (operation_of_run(run_of(write)) != state_->record)
        return found_unordered(access, write, cell->write_site, true);
      const Past past{write, cell->write_fences};
      if (!(access.atomic && (write & kAtomic)) && other_block(lane, past))
        return found_between_blocks(lane, access, past, cell->write_site, true);
    }
  }
  if ((cell->read & ~kFlags) != own) cell->read_site = state_->library->site_of(access.pc);
  cell->read = with_reader(cell->read, own, width, access.atomic);
  cell->read_fences = lane->block->knowledge.fences;
  return true;
}

bool Runner::check_write(Lane* lane, Cell* cell, const Access& access) {
  const Stamp own = lane->stamp;
  const uint32_t width = width_;
  const Stamp write = cell->write;
  if (access.atomic && write == 0) return found(FindingKind::kUninitialised, access, 0, 0, false);
  if (write != 0 && (write ^ own) >> kThreadShift != 0) {
    const bool atomics = access.atomic && (write & kAtomic);
    if (run_of(write) == run_of(own)) {
      if (!atomics && concurrent(write, own, width)) {
        if (access.atomic || (write & kAtomic))
          return found(FindingKind::kRace, access, write, cell->write_site, true);
        await_value(lane, access, FindingKind::kRace, *cell);
      }
    } else if (!ordered_before_launch(lane, write)) {
      if (operation_of_run(run_of(write)) != state_->record)
        return found_unordered(access, write, cell->write_site, true);
      const Past past{write, cell->write_fences};
      if (!atomics && other_block(lane, past)) {
        if (access.atomic || (write & kAtomic))
          return found_between_blocks(lane, access, past, cell->write_site, true);
        await_value(lane, access, FindingKind::kDifferentValues, *cell);
      }
    }
  }
  const Stamp read = cell->read;
  if (read != 0) {
    const bool atomics = access.atomic && (read & kAtomic);
    if (run_of(read) == run_of(own)) {
      if (!atomics && concurrent_readers(read, own, width))
        return found(FindingKind::kRace, access, read, cell->read_site, false);
    } else if (!ordered_before_launch(lane, read)) {
      if (operation_of_run(run_of(read)) != state_->record)
        return found_unordered(access, read, cell->read_site, false);
      const Past past{read, cell->read_fences};
      if (!atomics && other_block(lane, past))
        return found_between_blocks(lane, access, past, cell->read_site, false);
    }
  }
  cell->write = own | (access.atomic ? kAtomic : 0);
  cell->read = 0;
  cell->write_site = state_->library->site_of(access.pc);
  cell->write_fences = lane->block->knowledge.fences;
  return true;
}

void Runner::await_value(Lane* lane, const Access& access, FindingKind kind, const Cell& cell) {
  PendingStore& pending = lane->pending;
  if (pending.bytes) return;
  pending.address = access.address;
  pending.bytes = static_cast<uint32_t>(std::min<uint64_t>(access.bytes, sizeof(pending.before)));
  pending.kind = static_cast<uint8_t>(kind);
  std::memcpy(pending.before, reinterpret_cast<const void*>(access.address), pending.bytes);
  pending.other = cell.write;
  pending.other_site = cell.write_site;
  pending.pc = access.pc;
}

void Runner::settle(Lane* lane) {
  PendingStore& pending = lane->pending;
  if (!pending.bytes) return;
  const bool same = std::memcmp(reinterpret_cast<const void*>(pending.address), pending.before,
                                pending.bytes) == 0;
  Access access;
  access.address = pending.address;
  access.bytes = pending.bytes;
  access.write = true;
  access.pc = pending.pc;
  pending.bytes = 0;
  if (same) return;
  found(static_cast<FindingKind>(pending.kind), access, pending.other, pending.other_site, true);
  fail(lane, finding_);
}

}  // namespace softgpu
