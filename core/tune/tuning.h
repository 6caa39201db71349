// Knows which of several ways to launch an op was measured to be the fastest. tuning.h has the
// choices of this process, stored.h keeps them in the cache, and device_text.h names the device
// that they hold for. The plugin asks through call/tuning.h, chain/chain_kernels.cc reads the
// stored choices when it loads a plugin, and api/tuning.cc lets `opdock bench --tune` measure.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <bit>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>
namespace opdock {

// Measured choices are valid for one build of a plugin on one kind of device.
struct TuningScope {
  std::string plugin;
  std::string version;
  std::string build;   // the note's build hash, hex
  std::string device;  // "NVIDIA H200, sm_90, 132 multiprocessors"
  auto operator<=>(const TuningScope&) const = default;
};

using TunedChoices = std::vector<std::pair<uint64_t, int32_t>>;  // question, choice

// The answers for a plugin's ops on one device. Lives until the process ends; any thread.
class Tuning {
 public:
  explicit Tuning(TuningScope scope) : scope_(std::move(scope)) {}
  const TuningScope& scope() const { return scope_; }

  // Returns the fastest choice. -1: nothing was measured, or the stored choice is not below
  // `count`. op_name() returns the name of the op that asks; called only while choices are
  // measured.
  template <class OpName>
  int32_t choice(uint64_t question, uint32_t count, const OpName& op_name) const {
    const Table* const table = table_.load(std::memory_order_acquire);
    if (table == nullptr) return -1;
    int32_t found = table->find(question);
    if (table->is_measuring) [[unlikely]]
      found = measured(op_name(), question, count, found);
    // An answer that was stored for a plugin with other numbers must not break the call.
    return found >= 0 && static_cast<uint32_t>(found) < count ? found : -1;
  }

 private:
  friend struct Tunings;
  // A hash table with open addressing, never changed once it is published. The number of slots is a
  // power of two, and at least one slot is free.
  struct Table {
    struct Slot {
      uint64_t question;
      int32_t choice;  // -1: the slot is free
    };
    bool is_measuring;
    std::vector<Slot> slots;

    size_t first_slot(uint64_t question) const {
      return static_cast<size_t>(question * 0x9e3779b97f4a7c15u >> 32) & (slots.size() - 1);
    }
    int32_t find(uint64_t question) const;
  };
  // Records the question. Returns the answer that replaces `found`, or `found`.
  int32_t measured(const std::string& op, uint64_t question, uint32_t count,
                   int32_t found) const noexcept;
  void publish(bool is_measuring);

  const TuningScope scope_;
  std::atomic<const Table*> table_{nullptr};
  TunedChoices choices_;
  // Former tables are kept, because calls may still be reading them. Only measuring and retune()
  // add new ones.
  std::vector<std::unique_ptr<const Table>> tables_;
};

// Returns the tuning of a scope, which all runtimes of the process share; NULL if there is none
// yet.
Tuning* find_tuning(const TuningScope& scope);
// Does the same, but creates the tuning with `known` if there is none yet.
Tuning* intern_tuning(const TuningScope& scope, const TunedChoices& known);
// Replaces the choices for the scope's calls in this process from now on. Has no effect if the
// scope has no tuning yet.
void retune(const TuningScope& scope, const TunedChoices& choices);

// A question that an op asked while choices were measured.
struct AskedQuestion {
  TuningScope scope;
  std::string op;
  uint64_t question;
  uint32_t count;  // number of choices
};
// Records all questions of this process from now on. If `choice` is given (-1 included), it becomes
// the answer to `question`, or without a `question` to every question; other questions are answered
// as usual.
void measure_ways(std::optional<uint64_t> question, std::optional<int32_t> choice);
void stop_measuring();
// Returns the questions asked since the last call, each once, sorted by scope, op and number.
std::vector<AskedQuestion> take_asked();

}  // namespace opdock
