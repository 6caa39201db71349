// SPDX-License-Identifier: Apache-2.0
#include "allocations.h"

#include <map>
#include <mutex>

#include "memory.h"

namespace softgpu {
namespace {

// cudaMalloc's alignment, and no more, so that nobody relies on more.
constexpr uint64_t kAlignment = 256;
constexpr size_t kKeptReleased = 4096;

struct Known {
  Allocation allocation;
  uint64_t order = 0;  // of the allocation or of the release
};

struct Table {
  std::mutex mutex;
  std::map<uintptr_t, Known> live;
  std::map<uintptr_t, Known> released;
  std::map<uint64_t, uintptr_t> released_order;
  uint64_t count = 0;
};

Table& table() {
  static auto* const all = new Table;  // never destroyed, because other code may still run at exit
  return *all;
}

// Returns how far the address is outside the allocation.
uint64_t distance(const Allocation& allocation, uintptr_t address) {
  if (address < allocation.begin) return allocation.begin - address;
  if (address < allocation.begin + allocation.bytes) return 0;
  return address - (allocation.begin + allocation.bytes) + 1;
}

void consider(const std::map<uintptr_t, Known>& all, uintptr_t address, bool released,
              Nearest* best) {
  auto at = all.upper_bound(address);
  for (int i = 0; i < 2; ++i) {
    if (at != all.end()) {
      const Allocation& allocation = at->second.allocation;
      if (!best->found || distance(allocation, address) < distance(best->allocation, address))
        *best = {allocation, true, released};
    }
    if (at == all.begin()) break;
    --at;
  }
}

}  // namespace

void* allocate(int device, uint64_t bytes) {
  // The address is a multiple of 256, but of no larger power of two.
  const uintptr_t pages = take_addresses(bytes + kAlignment);
  if (!pages) return nullptr;
  const uintptr_t begin = pages + kAlignment;
  open_pages(begin, bytes, PageKind::kGlobal, device);
  Table& all = table();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.live[begin] = {{begin, bytes, device}, all.count++};
  // These addresses may have belonged to released allocations.
  for (auto at = all.released.lower_bound(begin > kPageBytes ? begin - kPageBytes : 0);
       at != all.released.end() && at->first < begin + bytes;) {
    all.released_order.erase(at->second.order);
    at = all.released.erase(at);
  }
  return reinterpret_cast<void*>(begin);
}

bool release(void* memory) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
  Allocation allocation;
  {
    Table& all = table();
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.live.find(begin);
    if (found == all.live.end()) return false;
    allocation = found->second.allocation;
    all.live.erase(found);
    all.released[begin] = {allocation, all.count};
    all.released_order[all.count++] = begin;
    if (all.released.size() > kKeptReleased) {
      all.released.erase(all.released_order.begin()->second);
      all.released_order.erase(all.released_order.begin());
    }
  }
  close_pages(begin, allocation.bytes, PageKind::kReleased);
  give_back_pages(begin, allocation.bytes);
  return true;
}

bool find_allocation(uintptr_t address, uint64_t bytes, Allocation* out) {
  Table& all = table();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto at = all.live.upper_bound(address);
  if (at == all.live.begin()) return false;
  const Allocation& allocation = (--at)->second.allocation;
  if (address - allocation.begin > allocation.bytes ||
      bytes > allocation.bytes - (address - allocation.begin))
    return false;
  if (out) *out = allocation;
  return true;
}

std::vector<Allocation> live_allocations() {
  Table& all = table();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::map<uint64_t, Allocation> ordered;
  for (const auto& [begin, known] : all.live) ordered[known.order] = known.allocation;
  std::vector<Allocation> out;
  for (const auto& [order, allocation] : ordered) out.push_back(allocation);
  return out;
}

Nearest nearest_allocation(uintptr_t address) {
  Table& all = table();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Nearest best;
  consider(all.live, address, false, &best);
  consider(all.released, address, true, &best);
  return best;
}

}  // namespace softgpu
