// Copies and fills. The host executes them, with the same checks as for kernels.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "engine.h"
#include "finding.h"
#include "memory.h"
#include "operations.h"

namespace softgpu {
namespace {

// Checks the accesses of one operation, as for one thread of a kernel.
class HostAccess {
 public:
  explicit HostAccess(const Operation& operation)
      : operation_(operation),
        record_(record_operation(operation, 1)),
        own_(static_cast<Stamp>(record_->first_run) << 32) {}

  // Checks whether the bytes may be read or written, and then marks them as read or written.
  bool range(const void* memory, uint64_t bytes, bool write) {
    if (bytes == 0) return true;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
    if (!find_allocation(begin, bytes, nullptr))
      return found(Fault::kAddress, write ? "out-of-bounds write" : "out-of-bounds read", begin,
                   bytes);
    for (const ReadOnly& range : operation_.read_only)
      if (write && begin < range.begin + range.bytes && range.begin < begin + bytes)
        return found(Fault::kOther, "write in memory that is only to be read: " + range.what, begin,
                     bytes);
    for (uint64_t done = 0; done < bytes;) {
      const uintptr_t address = begin + done;
      const uint32_t offset = address & (kPageBytes - 1);
      const uint64_t part = std::min<uint64_t>(bytes - done, kPageBytes - offset);
      if (!page_part(address, offset, part, write)) return false;
      done += part;
    }
    return true;
  }

  void claim(void* memory, uint64_t bytes) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
    for (uintptr_t at = begin & ~(uintptr_t{kPageBytes} - 1); at < begin + bytes;
         at += kPageBytes) {
      Page& page = arena().page(at);
      const PageLock lock(&page);
      page.whole.read = own_;
    }
  }

 private:
  bool page_part(uintptr_t address, uint32_t offset, uint64_t bytes, bool write) {
    Page& page = arena().page(address);
    const PageLock lock(&page);
    Cell* cells = arena().cells_of(address);
    const bool whole = offset <= page.begin && offset + bytes >= page.end;
    if (!whole && ((offset | bytes) & ((uint64_t{1} << page.cell_shift) - 1)))
      refine(&page, cells, offset, bytes);
    const unsigned shift = page.cell_shift;
    if (shift == kPageShift) cells = &page.whole;
    const size_t last = (offset + bytes - 1) >> shift;
    for (size_t i = offset >> shift; i <= last; ++i) {
      Cell& cell = cells[i];
      const uintptr_t at = std::max(address, address - offset + (i << shift));
      if (!write && cell.write == 0) return found_unwritten(at, address + bytes - at);
      if (cell.write && !ordered(cell.write))
        return found(Fault::kOther,
                     write ? "stream race: write over what an unordered operation writes"
                           : "stream race: read of what an unordered operation writes",
                     at, address + bytes - at, cell.write, cell.write_site);
      if (write && cell.read && !ordered(cell.read))
        return found(Fault::kOther,
                     "stream race: write over what an unordered operation reads or allocates", at,
                     address + bytes - at, cell.read, cell.read_site);
      if (write) {
        cell = Cell();
        cell.write = own_;
      } else {
        cell.read = own_;
      }
    }
    if (write && whole) {
      page.cell_shift = kPageShift;
      page.whole = Cell();
      page.whole.write = own_;
    }
    return true;
  }

  bool ordered(Stamp stamp) {
    if (run_of(stamp) == ordered_run_ || run_of(stamp) == run_of(own_)) return true;
    if (!ordered_before(*operation_of_run(run_of(stamp)), operation_)) return false;
    ordered_run_ = run_of(stamp);
    return true;
  }

  bool found_unwritten(uintptr_t address, uint64_t bytes) {
    const std::vector<std::string> pending = pending_writes(operation_, address);
    if (pending.empty())
      return found(Fault::kOther, "read of uninitialised memory: nobody has written it", address,
                   bytes);
    std::string text =
        "stream race: read of what nobody has written yet, and nothing orders it after an "
        "operation of another stream that may";
    for (const std::string& other : pending)
      text += "\n  other    " + other + ", which is not done";
    return found(Fault::kOther, text, address, bytes);
  }

  bool found(Fault fault, const std::string& what, uintptr_t address, uint64_t bytes,
             Stamp other = 0, uint32_t site = 0) {
    std::string text = "softgpu: " + what + "\n";
    text += "  by       " + operation_.what + "\n";
    text += "  memory   " + describe_memory(address, bytes) + "\n";
    if (other) text += "  other    " + describe_stamp(other, site, record_) + "\n";
    report(text, fault);
    return false;
  }

  const Operation& operation_;
  OperationRecord* record_;
  Stamp own_;
  uint32_t ordered_run_ = 0;
};

}  // namespace

void* allocate(const Operation& operation, uint64_t bytes) {
  void* const memory = allocate(operation.device, bytes);
  // The memory counts as read by the operation, so a write that is not ordered after it is a
  // finding.
  if (memory) HostAccess(operation).claim(memory, bytes);
  return memory;
}

bool release(const Operation& operation, void* memory) {
  Allocation allocation;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
  if (!find_allocation(begin, 0, &allocation) || allocation.begin != begin) return false;
  // Counts as a write of all bytes.
  return HostAccess(operation).range(memory, allocation.bytes, true) && release(memory);
}

bool copy_to_device(const Operation& operation, void* to, const void* from, uint64_t bytes) {
  if (!HostAccess(operation).range(to, bytes, true)) return false;
  std::memcpy(to, from, bytes);
  return true;
}

bool copy_from_device(const Operation& operation, void* to, const void* from, uint64_t bytes) {
  if (!HostAccess(operation).range(from, bytes, false)) return false;
  std::memcpy(to, from, bytes);
  return true;
}

bool copy_on_device(const Operation& operation, void* to, const void* from, uint64_t bytes) {
  HostAccess access(operation);
  if (!access.range(from, bytes, false) || !access.range(to, bytes, true)) return false;
  std::memmove(to, from, bytes);
  return true;
}

bool fill(const Operation& operation, void* to, uint32_t value, unsigned size, uint64_t count) {
  if (!HostAccess(operation).range(to, size * count, true)) return false;
  unsigned char* out = static_cast<unsigned char*>(to);
  if (size == 1) {
    std::memset(out, static_cast<int>(value & 0xff), count);
  } else {
    for (uint64_t i = 0; i < count; ++i, out += size) std::memcpy(out, &value, size);
  }
  return true;
}

}  // namespace softgpu
