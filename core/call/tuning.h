// Which way to launch an op was measured to be the fastest: extension "opdock.tuning/1".
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

#include "opdock/plugin.h"

namespace opdock {

// What measured choices hold for: one build of a plugin on one kind of device.
struct TuningScope {
  std::string plugin;
  std::string version;
  std::string build;   // the note's build hash, hex
  std::string device;  // "NVIDIA H200, sm_90, 132 multiprocessors"
  auto operator<=>(const TuningScope&) const = default;
};

using TunedChoices = std::vector<std::pair<uint64_t, int32_t>>;  // question, choice

// What a plugin's ops on a device get as answers. Lives until the process ends; any thread.
class Tuning {
 public:
  explicit Tuning(TuningScope scope) : scope_(std::move(scope)) {}
  const TuningScope& scope() const { return scope_; }

  // -1: nothing is known, or what is known is no number below count.
  int32_t choice(const opdock_call* call, uint64_t question, uint32_t count) const {
    const Table* const table = table_.load(std::memory_order_acquire);
    return table == nullptr ? -1 : look_up(*table, call, question, count);
  }

 private:
  friend struct Tunings;
  // Never changed once it is published. Open addressing, a power of two of slots, one of them free.
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
  int32_t look_up(const Table& table, const opdock_call* call, uint64_t question,
                  uint32_t count) const;
  void publish(bool is_measuring);

  const TuningScope scope_;
  std::atomic<const Table*> table_{nullptr};
  TunedChoices choices_;
  // Those before are kept, as calls may be reading them; measuring alone makes new ones.
  std::vector<std::unique_ptr<const Table>> tables_;
};

// The one of the scope, for every runtime of the process; NULL if none has been made.
Tuning* find_tuning(const TuningScope& scope);
// The same, made with `known` by the first caller.
Tuning* intern_tuning(const TuningScope& scope, const TunedChoices& known);
// Has the scope's calls of this process go by other choices from now on. Nothing if none has been
// loaded that the scope is about.
void retune(const TuningScope& scope, const TunedChoices& choices);

// A question that was asked while ways were measured.
struct AskedQuestion {
  TuningScope scope;
  std::string op;
  uint64_t question;
  uint32_t count;  // of the ways
};
// From now on all questions of this process are recorded. With a choice, also -1, `question`, or
// without one every question, is answered with it; the others as they are without.
void measure_ways(std::optional<uint64_t> question, std::optional<int32_t> choice);
void stop_measuring();
// Those that were asked since this was last called, each once, in the order of their numbers.
std::vector<AskedQuestion> take_asked();

// The extension's table; static.
const opdock_tuning* tuning_extension();

}  // namespace opdock
