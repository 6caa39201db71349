// Keeps a thread's recent calls of formulas: a call whose arguments have the dtypes, shapes and
// strides of an earlier one finds there what it would compute again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "formula/device_launch.h"
#include "fused/device_kernels.h"
#include "opdock/plugin.h"

namespace opdock {

struct FusedInstance;

// All of a call but its numbers and addresses, as words. Calls with equal words are computed in the
// same way: keys are compared as a whole, and a hash only says where to look.
class CallKey {
 public:
  CallKey() = default;
  // op: FusedOp::number.
  CallKey(uint64_t op, opdock_device device) { begin(op, device); }

  // Forgets what was added before.
  void begin(uint64_t op, opdock_device device) {
    count_ = 0;
    hash_ = 0;
    is_complete_ = true;
    add(op);
    add(static_cast<uint64_t>(static_cast<uint32_t>(device.type)) << 32 |
        static_cast<uint32_t>(device.index));
  }

  // unit: addresses that differ by a multiple of it count as equal; a power of two.
  void add(const opdock_value* values, uint32_t count, uint64_t unit);
  // False if there is too much of it, or something of which a key says too little. Such a call is
  // not kept.
  bool is_complete() const { return is_complete_; }

  uint64_t hash() const { return hash_; }
  bool operator==(const std::vector<uint64_t>& other) const {
    return other.size() == count_ &&
           std::memcmp(other.data(), words_.data(), count_ * sizeof words_[0]) == 0;
  }
  void copy_to(std::vector<uint64_t>* words) const {
    words->assign(words_.data(), words_.data() + count_);
  }

 private:
  static constexpr size_t kMaxWords = 256;

  void add(uint64_t word) {
    words_[count_++] = word;
    hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15u;
    hash_ ^= hash_ >> 32;
  }
  void add_tensor(const opdock_value& value, uint64_t unit);
  void add_string(const opdock_string& text);

  std::array<uint64_t, kMaxWords> words_;  // uninitialised after the first count_
  size_t count_ = 0;
  uint64_t hash_ = 0;
  bool is_complete_ = true;
};

// The answer of FusedOp's plan to one call.
struct RecentPlan {
  FusedInstance* instance = nullptr;
  std::vector<opdock_output> outputs;
  uint64_t workspace_bytes = 0, workspace_alignment = 0;
};

// Everything that a run needs and that follows from its layouts.
struct RecentRun {
  FusedInstance* instance = nullptr;
  formula::Space space;
  // Whether a result has one element for a row, so that the call must check what it is written
  // over.
  bool has_row_results = false;
  // Where the parts of tensors begin that the graph reads and writes, in bytes behind the tensors'
  // first elements: of the inputs, and then of the results. Empty if it takes whole tensors.
  std::vector<ptrdiff_t> part_offsets;
  PreparedLaunch launch;  // GPUs
};

// Belongs to one thread.
template <class What>
class RecentCalls {
 public:
  // Returns what is kept of a call with that key, or NULL. Valid until the next keep().
  const What* find(const CallKey& key) const {
    const size_t first = key.hash() % kSlots;
    for (const size_t at : {first, first ^ 1})
      if (slots_[at].hash == key.hash() && key == slots_[at].key) return &slots_[at].what;
    return nullptr;
  }
  // Keeps it in place of another one.
  void keep(const CallKey& key, What what) {
    Slot& slot = slots_[(key.hash() % kSlots) ^ (turn_++ & 1)];
    slot.key.clear();  // no key is found half written, should there be no memory for it
    slot.what = std::move(what);
    key.copy_to(&slot.key);
    slot.hash = key.hash();
  }

 private:
  static constexpr size_t kSlots = 64;
  struct Slot {
    uint64_t hash = 0;
    std::vector<uint64_t> key;
    What what;
  };
  std::array<Slot, kSlots> slots_;
  size_t turn_ = 0;
};

// For ThreadOwn.
struct ThreadCalls {
  RecentCalls<RecentPlan> plans;
  RecentCalls<RecentRun> runs;
  // The key of the thread's last plan or run. A run adds its results to what its plan has left
  // here, and knows by the number that it is its own plan's: each change of the key has another
  // one, in all threads together.
  CallKey key;
  uint64_t number = first_number();

  void begin(uint64_t op, opdock_device device, const opdock_value* args, uint32_t num_args) {
    ++number;
    key.begin(op, device);
    key.add(args, num_args, unit_of(device));
  }
  void add_results(opdock_device device, const opdock_value* results, uint32_t num_results) {
    ++number;
    key.add(results, num_results, unit_of(device));
  }

 private:
  static uint64_t first_number();
  static uint64_t unit_of(opdock_device device) {
    return device.type == OPDOCK_CPU ? 1 : formula::kAddressUnit;
  }
};

}  // namespace opdock
