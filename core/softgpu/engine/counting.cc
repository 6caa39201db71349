// SPDX-License-Identifier: Apache-2.0
#include "counting.h"

#include <algorithm>

#include "random.h"

namespace softgpu {
namespace {

constexpr uint64_t kSectorBytes = 32;
constexpr uint64_t kBankBytes = 4, kBanks = 32;

std::mutex counting_mutex;
std::vector<Counters>& published() {
  static auto* const all = new std::vector<Counters>;
  return *all;
}

uint64_t distinct(std::vector<uint64_t>* values) {
  std::sort(values->begin(), values->end());
  values->erase(std::unique(values->begin(), values->end()), values->end());
  return values->size();
}

}  // namespace

void BlockCounting::begin(uint32_t warps, uint32_t warp_size) {
  warp_size_ = warp_size;
  counts_ = Counters();
  warps_.assign(warps, Warp());
  for (Warp& warp : warps_) warp.visits.resize(warp_size);
}

void BlockCounting::access(uint32_t warp, uint32_t lane, const void* pc, RequestKind kind,
                           uintptr_t address, uint64_t bytes) {
  Warp& mine = warps_[warp];
  const uint32_t visit = mine.visits[lane][pc]++;
  const uint64_t key =
      mix(reinterpret_cast<uintptr_t>(pc), uint64_t{visit} << 8 | static_cast<uint64_t>(kind));
  Request& request = mine.open[key];
  request.kind = kind;
  request.bytes = bytes;
  request.at.emplace_back(lane, address);
  if (request.at.size() < warp_size_) return;
  count(request);
  mine.open.erase(key);
}

const Counters& BlockCounting::end() {
  for (Warp& warp : warps_) {
    for (const auto& [key, request] : warp.open) count(request);
    warp.open.clear();
  }
  return counts_;
}

void BlockCounting::count(const Request& request) {
  if (request.kind == RequestKind::kAtomic) {
    ++counts_.atomics;
    return;
  }
  const bool load =
      request.kind == RequestKind::kGlobalLoad || request.kind == RequestKind::kSharedLoad;
  if (request.kind == RequestKind::kGlobalLoad || request.kind == RequestKind::kGlobalStore) {
    std::vector<uint64_t> sectors;
    for (const auto& [lane, address] : request.at)
      for (uint64_t at = address / kSectorBytes; at <= (address + request.bytes - 1) / kSectorBytes;
           ++at)
        sectors.push_back(at);
    ++(load ? counts_.global_load_requests : counts_.global_store_requests);
    (load ? counts_.global_load_sectors : counts_.global_store_sectors) += distinct(&sectors);
    return;
  }
  ++(load ? counts_.shared_load_requests : counts_.shared_store_requests);
  // The banks together deliver 128 bytes at a time, so wide accesses and wide warps are split.
  const uint64_t together = std::clamp<uint64_t>(kBanks * kBankBytes / request.bytes, 1, kBanks);
  for (uint64_t first = 0; first < warp_size_; first += together) {
    std::vector<uint64_t> words;
    for (const auto& [lane, address] : request.at)
      if (lane >= first && lane < first + together)
        for (uint64_t at = address / kBankBytes; at <= (address + request.bytes - 1) / kBankBytes;
             ++at)
          words.push_back(at);
    distinct(&words);
    uint64_t in_bank[kBanks] = {}, most = 0;
    for (uint64_t word : words) most = std::max(most, ++in_bank[word % kBanks]);
    if (most > 1) counts_.shared_bank_conflicts += most - 1;
  }
}

void add_counters(Counters* sum, const Counters& part) {
  for (const auto& [name, value] : kCounters) sum->*value += part.*value;
}

void publish_counters(const Counters& launch) {
  const std::lock_guard<std::mutex> lock(counting_mutex);
  for (Counters& known : published()) {
    if (known.kernel != launch.kernel) continue;
    add_counters(&known, launch);
    return;
  }
  published().push_back(launch);
}

std::vector<Counters> counters() {
  const std::lock_guard<std::mutex> lock(counting_mutex);
  return published();
}

}  // namespace softgpu
