// SPDX-License-Identifier: Apache-2.0
#include "chain/resolver.h"

#include <algorithm>
#include <mutex>

#include "base/mutex.h"
#include "base/near_names.h"
#include "call/host.h"
#include "chain/chain_report.h"
#include "chain/declared.h"
#include "chain/known_ops.h"
#include "chain/runtime.h"
#include "load/loader.h"
#include "manifest/manifest.h"
#include "schema/dtype.h"
#include "schema/op_flags.h"

namespace opdock {
namespace {

using CandidatePtr = std::shared_ptr<const Candidate>;
using SourcePtr = std::shared_ptr<const SourcePlugin>;

Mutex& making_tables = *new Mutex;

std::string op_name(const std::string& name) {
  const size_t slash = name.find('/');
  return slash == std::string::npos ? name : name.substr(slash + 1);
}

const OpDecl* declaration_of(const SourcePlugin& source, const std::string& op) {
  for (const OpDecl& declared : source.manifest->ops) {
    if (declared.name == op) return &declared;
  }
  return nullptr;
}

// Whether the candidate serves the op on some device of this machine, as it is or once its device
// code is compiled.
bool may_serve(const Candidate& candidate, Wanted wanted) {
  if (candidate.verdict.state != State::kRejected) return true;
  for (const DeviceVerdict& device : candidate.verdict.devices) {
    if (device.index < 0) continue;
    wanted.device = {static_cast<int32_t>(device.backend), device.index};
    if (can_compile(candidate, wanted)) return true;
  }
  return false;
}

// Every provider's reasons, as a record that tells why there is no function at all.
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

Status FunctionTable::wanted(const std::string& name, Wanted* out) {
  const std::shared_ptr<const Catalog> catalog = runtime_->catalog();
  Wanted& wanted = *out = {name, op_name(name), "", "", {}, {}};
  Status none{OPDOCK_INCOMPATIBLE, ""};
  const auto take = [&](const OpClaim& claim) {
    Reason error{};
    const std::optional<Schema> schema = parse_schema(claim.schema, &error);
    if (!schema) {
      none.text = to_text(error);
      return false;
    }
    wanted.schema = schema->text();
    wanted.digest = schema->digest();
    wanted.arg_devices = arg_devices_of(claim, *schema);
    return true;
  };
  const std::vector<CandidatePtr> candidates = catalog->providers(name);
  const std::vector<SourcePtr> sources = catalog->source_providers(name);
  const auto from_source = [&](bool may_be_rejected) {
    for (const SourcePtr& source : sources) {
      if (source->state == State::kRejected && !may_be_rejected) continue;
      if (take(to_claim(*declaration_of(*source, wanted.op)))) return true;
    }
    return false;
  };
  const auto from_binary = [&](bool may_be_rejected) {
    for (const CandidatePtr& candidate : candidates) {
      if (!take(*claim_of(*candidate, wanted.op))) continue;
      if (may_be_rejected || may_serve(*candidate, wanted)) return true;
    }
    return false;
  };
  const bool source_first = runtime_->settings().build.value == "always";
  if (source_first && from_source(false)) return {};
  if (from_binary(false) || from_source(false)) return {};
  // Nothing here can serve, but it is known what the op is: the reference may.
  if ((from_binary(true) || from_source(true)) && has_reference(runtime_, wanted)) return {};
  return none;
}

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
    const std::vector<std::string> known = known_ops(*catalog);
    std::string near;
    for (const std::string& one : near_names(name, known)) {
      near += (near.empty() ? "; did you mean " : " or ") + one;
    }
    const char* const advice =
        known.empty() ? "No plugin was found at all: `opdock doctor` shows where they are searched"
                      : "`opdock list` shows what there is, OPDOCK_PLUGIN_PATH says where to look";
    return {OPDOCK_NOT_FOUND, "no plugin in the search path provides \"" + name + "\"" +
                                  (near.empty() ? ". " : near + "? ") + advice};
  }
  Wanted found;
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

Declared FunctionTable::declared(const Wanted& wanted) {
  // What a caller has to be ready for, whoever of them serves.
  constexpr uint32_t kAny =
      OPDOCK_OP_MAY_BLOCK | OPDOCK_OP_HOST_SYNC | OPDOCK_OP_RANDOM | OPDOCK_OP_RETAINS;
  const std::shared_ptr<const Catalog> catalog = runtime_->catalog();
  std::optional<Declared> first;
  uint32_t flags = 0;
  const auto look_at = [&](const OpClaim& claim, std::span<const OpClaim> ops) {
    const std::optional<Schema> schema = parse_schema(claim.schema, nullptr);
    if (!schema || schema->digest() != wanted.digest) return;
    flags |= op_flag_bits(claim.flags) & kAny;
    Reason ignored{};  // told when the plugin is loaded
    if (!first) first = declared_of(claim, ops, &ignored);
  };
  for (const CandidatePtr& one : catalog->providers(wanted.name)) {
    look_at(*claim_of(*one, wanted.op), one->file.note->ops);
  }
  for (const SourcePtr& one : catalog->source_providers(wanted.name)) {
    std::vector<OpClaim> ops;
    for (const OpDecl& op : one->manifest->ops) ops.push_back(to_claim(op));
    look_at(to_claim(*declaration_of(*one, wanted.op)), ops);
  }
  Declared found = first ? *std::move(first) : Declared();
  found.flags |= flags;
  return found;
}

std::shared_ptr<FunctionTable::Resolution> FunctionTable::resolution(const std::string& name,
                                                                     opdock_device device) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Resolution>& slot = resolutions_[{name, device.type, device.index}];
  if (slot == nullptr) slot = std::make_shared<Resolution>();
  return slot;
}

// NULL: cancelled while somebody else was at it. A record with within-itself: it was this thread.
std::shared_ptr<const ChainRecord> FunctionTable::attempt(Resolution* slot,
                                                          const opdock_function& function,
                                                          opdock_device device) {
  HookedProgress progress(runtime_->hooks());
  const std::shared_ptr<const ChainRecord> before = slot->latest();
  std::optional<Taken> turn;
  if (slot->turn.try_take()) {
    turn.emplace(&slot->turn, std::adopt_lock);
  } else {
    const Waiting waiting(runtime_->hooks());
    turn.emplace(&slot->turn, [&] { return progress.cancelled(); });
  }
  if (turn->was_stopped()) return nullptr;
  if (turn->is_ours()) {
    ChainRecord record;
    record.device = device;
    record.cancelled = true;
    const Reason why = within_itself(function.name() + " to be made ready on " + to_text(device));
    record.steps.push_back({ChainStep::Kind::kBinary, ChainStep::Outcome::kFailed, "", {}, {}});
    record.steps.back().reasons.push_back({"", "", why});
    return std::make_shared<const ChainRecord>(std::move(record));
  }
  // What another one found meanwhile holds for us, unless it was stopped: then we take over.
  const std::shared_ptr<const ChainRecord> latest = slot->latest();
  if (latest != nullptr && !latest->cancelled && (latest != before || latest->target != nullptr)) {
    return latest;
  }
  const Wanted wanted{
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

std::string FunctionTable::doc(const opdock_function& function) {
  const std::string& op = function.schema().name;
  const std::shared_ptr<const Catalog> catalog = runtime_->catalog();
  for (const CandidatePtr& candidate : catalog->providers(function.name())) {
    const OpClaim& claim = *claim_of(*candidate, op);
    if (candidate->verdict.state == State::kRejected || claim.digest != function.digest()) continue;
    std::vector<Reason> reasons;
    const LoadedPlugin* plugin = load(candidate, host_table(), &reasons);
    if (plugin == nullptr) continue;
    for (uint32_t i = 0; i < plugin->descriptor->num_ops; ++i) {
      const opdock_op* one = plugin->descriptor->ops[i];
      if (one != nullptr && one->schema != nullptr && claim.schema == one->schema &&
          one->doc != nullptr) {
        return one->doc;
      }
    }
  }
  for (const SourcePtr& source : catalog->source_providers(function.name())) {
    const OpDecl& declared = *declaration_of(*source, op);
    if (declared.schema == function.info().schema) return declared.doc;
  }
  return "";
}

std::shared_ptr<const ChainRecord> FunctionTable::explain(const std::string& name,
                                                          opdock_device device) {
  Wanted found;
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
