// SPDX-License-Identifier: Apache-2.0
#include "chain/function_table.h"

#include <mutex>

#include "base/mutex.h"
#include "base/similar_names.h"
#include "chain/chain_report.h"
#include "chain/op_names.h"
#include "chain/runtime.h"
#include "schema/dtype.h"

namespace opdock {
namespace {

using CandidatePtr = std::shared_ptr<const Candidate>;
using SourcePtr = std::shared_ptr<const SourcePlugin>;

Mutex& making_tables = *new Mutex;

// Returns every provider's reasons, as a record of why there is no function at all.
ChainRecord refusals(const std::vector<CandidatePtr>& candidates,
                     const std::vector<SourcePtr>& sources) {
  ChainRecord record;
  ChainStep binary{ChainStep::Kind::kBinary, ChainStep::Outcome::kFailed, "none fits", {}, {}};
  for (const CandidatePtr& candidate : candidates) {
    for (const Reason& reason : candidate->verdict.reasons) {
      if (is_serious(reason)) binary.reasons.push_back(reason_of(*candidate, reason));
    }
  }
  if (!candidates.empty()) record.steps.push_back(std::move(binary));
  ChainStep build{
      ChainStep::Kind::kBuild, ChainStep::Outcome::kFailed, "none may be built", {}, {}};
  for (const SourcePtr& source : sources) {
    for (const Reason& reason : source->reasons) {
      if (is_serious(reason)) build.reasons.push_back(reason_of(*source, reason));
    }
  }
  if (!sources.empty()) record.steps.push_back(std::move(build));
  return record;
}

std::string lines_of(const ChainRecord& record) {
  std::string text, path;
  for (const ChainStep& step : record.steps) {
    for (const StepReason& one : step.reasons) {
      if (one.path != path) text += "\n  " + one.plugin + " (" + one.path + "): ";
      if (one.path == path) text += " ";
      text += to_text(one.reason);
      path = one.path;
    }
  }
  return text;
}

}  // namespace

Status FunctionTable::get(const std::string& name, opdock_function** out) {
  {
    const std::lock_guard lock(mutex_);
    const auto known = functions_.find(name);
    if (known != functions_.end()) {
      *out = known->second.get();
      return {};
    }
  }
  const std::shared_ptr<const Catalog> catalog = runtime_->catalog();
  const std::vector<CandidatePtr> candidates = catalog->providers(name);
  const std::vector<SourcePtr> sources = catalog->source_providers(name);
  if (candidates.empty() && sources.empty()) {
    const std::vector<std::string> known = op_names(*catalog);
    std::string similar;
    for (const std::string& one : similar_names(name, known)) {
      similar += (similar.empty() ? "; did you mean " : " or ") + one;
    }
    if (similar.empty()) {
      for (const std::string& one : similar_names(name, known_plugins(*catalog))) {
        similar += (similar.empty() ? "; did you mean an op of the plugin " : " or ") + one;
      }
    }
    const char* const advice =
        known.empty() ? "No plugin was found at all: `opdock doctor` shows where they are searched"
                      : "`opdock list` shows what there is, OPDOCK_PLUGIN_PATH says where to look";
    return {OPDOCK_NOT_FOUND, "no plugin in the search path provides \"" + name + "\"" +
                                  (similar.empty() ? ". " : similar + "? ") + advice};
  }
  ChainRequest found;
  const Status is_known = wanted(name, &found);
  std::optional<Schema> schema;
  if (is_known.ok()) schema = parse_schema(found.schema, nullptr);
  if (!schema) {
    const ChainRecord record = refusals(candidates, sources);
    keep_reasons(flat_reasons(record));
    return {OPDOCK_INCOMPATIBLE,
            "\"" + name + "\": no plugin that provides it can be used here:" + lines_of(record) +
                (is_known.text.empty() ? "" : "\n  " + is_known.text)};
  }
  auto function =
      std::make_unique<opdock_function>(name, *std::move(schema), this, declared(found));
  const std::lock_guard lock(mutex_);
  std::unique_ptr<opdock_function>& place = functions_[name];
  if (place == nullptr) place = std::move(function);
  *out = place.get();
  return {};
}

std::shared_ptr<FunctionTable::Resolution> FunctionTable::resolution(const std::string& name,
                                                                     opdock_device device) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Resolution>& slot = resolutions_[{name, device.type, device.index}];
  if (slot == nullptr) slot = std::make_shared<Resolution>();
  return slot;
}

// Takes the chain's steps, or waits for the thread that does. Returns NULL if cancelled while it
// waited, and a record with within-itself if this thread would wait for itself.
std::shared_ptr<const ChainRecord> FunctionTable::attempt(Resolution* slot,
                                                          const opdock_function& function,
                                                          opdock_device device) {
  HookedProgress progress(runtime_->hooks());
  const std::shared_ptr<const ChainRecord> before = slot->latest();
  std::optional<ForkAwareGuard> guard;
  if (slot->lock.try_lock()) {
    guard.emplace(&slot->lock, std::adopt_lock);
  } else {
    const Waiting waiting(runtime_->hooks());
    guard.emplace(&slot->lock, [&] { return progress.cancelled(); });
  }
  if (guard->was_cancelled()) return nullptr;
  if (guard->would_deadlock()) {
    ChainRecord record;
    record.device = device;
    record.cancelled = true;
    const Reason why = deadlock_reason(function.name() + " to be made ready on " + to_text(device));
    record.steps.push_back({ChainStep::Kind::kBinary, ChainStep::Outcome::kFailed, "", {}, {}});
    record.steps.back().reasons.push_back({"", "", why});
    return std::make_shared<const ChainRecord>(std::move(record));
  }
  // Use what another thread found meanwhile, unless it was stopped; then this thread takes over.
  const std::shared_ptr<const ChainRecord> latest = slot->latest();
  if (latest != nullptr && !latest->cancelled && (latest != before || latest->target != nullptr)) {
    return latest;
  }
  const ChainRequest wanted{
      function.name(), function.schema().name, function.info().schema, function.digest(),
      device,          function.arg_devices()};
  auto record =
      std::make_shared<const ChainRecord>(run_chain(runtime_, wanted, &function, &progress));
  const std::lock_guard lock(slot->mutex);
  slot->record = record;
  return record;
}

Status FunctionTable::resolve(const opdock_function& function, opdock_device device, Target** out) {
  const std::shared_ptr<Resolution> slot = resolution(function.name(), device);
  const std::shared_ptr<const ChainRecord> record = attempt(slot.get(), function, device);
  if (record != nullptr && record->target != nullptr) {
    *out = record->target;
    return {};
  }
  if (record != nullptr && record->cancelled) {
    for (const Reason& reason : record->reasons()) {
      if (reason.code == Code::kWithinItself) return {OPDOCK_INVALID_ARGUMENT, to_text(reason)};
    }
  }
  if (record == nullptr || record->cancelled) {
    return {OPDOCK_CANCELLED,
            "stopped on request while " + to_text(device) + " was being prepared; ask again"};
  }
  keep_reasons(flat_reasons(*record));
  return {OPDOCK_INCOMPATIBLE,
          "nothing here runs it on " + to_text(device) + ":\n" + record->story() +
              "\nMove the arguments to a device that a plugin serves, or add a plugin; `opdock "
              "explain " +
              function.schema().name + "` says more"};
}

std::shared_ptr<const ChainRecord> FunctionTable::explain(const std::string& name,
                                                          opdock_device device) {
  ChainRequest found;
  if (!wanted(name, &found).ok()) return nullptr;
  const std::shared_ptr<Resolution> slot = resolution(name, device);
  {
    const std::lock_guard lock(slot->mutex);
    if (slot->record != nullptr) return slot->record;
  }
  found.device = device;
  HookedProgress progress(runtime_->hooks());
  return std::make_shared<const ChainRecord>(run_chain(runtime_, found, nullptr, &progress));
}

FunctionTable& function_table(opdock_runtime* runtime) {
  const std::lock_guard lock(making_tables);
  if (runtime->functions == nullptr) {
    runtime->functions = std::make_shared<FunctionTable>(runtime);
  }
  return *static_cast<FunctionTable*>(runtime->functions.get());
}

}  // namespace opdock
