// SPDX-License-Identifier: Apache-2.0
#include "tune/tuning.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/guarded.h"
#include "base/mutex.h"

namespace opdock {

// Never destroyed: calls may still run while static objects are being destroyed.
struct Tunings {
  Mutex mutex;
  std::map<TuningScope, std::unique_ptr<Tuning>> all;
  bool is_measuring = false;
  std::optional<int32_t> choice;     // the answer while choices are measured
  std::optional<uint64_t> question;  // the question that gets this answer; none: all questions
  std::map<std::tuple<const Tuning*, std::string, uint64_t>, uint32_t> asked;  // number of choices

  // The caller holds the mutex.
  void publish_all() {
    for (const auto& [scope, tuning] : all) tuning->publish(is_measuring);
  }
  // Records a question that was asked while choices are measured. Returns the answer that replaces
  // the stored one, if any.
  std::optional<int32_t> record(const Tuning* tuning, const std::string& op, uint64_t asked_one,
                                uint32_t count) {
    const std::lock_guard lock(mutex);
    if (!is_measuring) return {};  // measuring ended after the caller had read the table
    asked[{tuning, op, asked_one}] = count;
    return !question || *question == asked_one ? choice : std::nullopt;
  }
  static void set(Tuning* tuning, TunedChoices choices, bool is_measuring) {
    tuning->choices_ = std::move(choices);
    tuning->publish(is_measuring);
  }
};

namespace {

Tunings& here = *new Tunings;

}  // namespace

int32_t Tuning::Table::find(uint64_t question) const {
  if (slots.empty()) return -1;
  size_t at = first_slot(question);
  while (slots[at].choice >= 0 && slots[at].question != question)
    at = (at + 1) & (slots.size() - 1);
  return slots[at].choice;
}

int32_t Tuning::measured(const std::string& op, uint64_t question, uint32_t count,
                         int32_t found) const noexcept {
  guarded({}, [&] {
    found = here.record(this, op, question, count).value_or(found);
    return OPDOCK_OK;
  });
  return found;
}

// The caller holds the mutex of Tunings.
void Tuning::publish(bool is_measuring) {
  std::unique_ptr<Table> table;
  if (is_measuring || !choices_.empty()) {
    table = std::make_unique<Table>(Table{is_measuring, {}});
    if (!choices_.empty()) table->slots.assign(std::bit_ceil(2 * choices_.size()), {0, -1});
    for (const auto& [question, choice] : choices_) {
      if (choice < 0 || table->find(question) >= 0) continue;
      size_t at = table->first_slot(question);
      while (table->slots[at].choice >= 0) at = (at + 1) & (table->slots.size() - 1);
      table->slots[at] = {question, choice};
    }
    tables_.push_back(nullptr);  // first, because it may throw
  }
  table_.store(table.get(), std::memory_order_release);
  if (table != nullptr) tables_.back() = std::move(table);
}

Tuning* find_tuning(const TuningScope& scope) {
  const std::lock_guard lock(here.mutex);
  const auto found = here.all.find(scope);
  return found == here.all.end() ? nullptr : found->second.get();
}

Tuning* intern_tuning(const TuningScope& scope, const TunedChoices& known) {
  const std::lock_guard lock(here.mutex);
  std::unique_ptr<Tuning>& place = here.all[scope];
  if (place != nullptr) return place.get();
  place = std::make_unique<Tuning>(scope);
  Tunings::set(place.get(), known, here.is_measuring);
  return place.get();
}

void retune(const TuningScope& scope, const TunedChoices& choices) {
  const std::lock_guard lock(here.mutex);
  const auto found = here.all.find(scope);
  if (found != here.all.end()) Tunings::set(found->second.get(), choices, here.is_measuring);
}

void measure_ways(std::optional<uint64_t> question, std::optional<int32_t> choice) {
  const std::lock_guard lock(here.mutex);
  here.question = question;
  here.choice = choice;
  if (here.is_measuring) return;
  here.is_measuring = true;
  here.publish_all();
}

void stop_measuring() {
  const std::lock_guard lock(here.mutex);
  if (!here.is_measuring) return;
  here.is_measuring = false;
  here.asked.clear();
  here.publish_all();
}

std::vector<AskedQuestion> take_asked() {
  std::vector<AskedQuestion> taken;
  const std::lock_guard lock(here.mutex);
  for (const auto& [key, count] : here.asked) {
    const auto& [tuning, op, question] = key;
    taken.push_back({tuning->scope(), op, question, count});
  }
  here.asked.clear();
  std::sort(taken.begin(), taken.end(), [](const AskedQuestion& a, const AskedQuestion& b) {
    return std::tie(a.scope, a.op, a.question) < std::tie(b.scope, b.op, b.question);
  });
  return taken;
}

}  // namespace opdock
