// SPDX-License-Identifier: Apache-2.0
#include "api/explain.h"

#include <algorithm>
#include <array>
#include <set>

#include "attention/decisions.h"
#include "base/similar_names.h"
#include "chain/chain_report.h"
#include "chain/function_table.h"
#include "chain/op_names.h"
#include "discover/order.h"
#include "fused/fused_op.h"
#include "inspect/inspect_file.h"
#include "opdock/simd_level.hpp"
#include "report/plugins.h"
#include "schema/dtype.h"

namespace opdock {
namespace {

using CandidatePtr = std::shared_ptr<const Candidate>;
using SourcePtr = std::shared_ptr<const SourcePlugin>;

template <class List>
void sort_best_first(List* list) {
  std::stable_sort(list->begin(), list->end(),
                   [](const auto& a, const auto& b) { return is_better(*a, *b); });
}

// Returns the devices of this machine that some provider is for. The CPU is always included,
// because the reference can stand in there.
std::vector<opdock_device> devices_of(const std::vector<CandidatePtr>& candidates,
                                      const std::vector<SourcePtr>& sources) {
  std::set<std::pair<int32_t, int32_t>> found = {{OPDOCK_CPU, 0}};
  const auto add = [&](const std::vector<DeviceVerdict>& devices) {
    for (const DeviceVerdict& device : devices) {
      if (device.index >= 0) found.emplace(static_cast<int32_t>(device.backend), device.index);
    }
  };
  for (const CandidatePtr& candidate : candidates) add(candidate->verdict.devices);
  for (const SourcePtr& source : sources) add(source->devices);
  std::vector<opdock_device> devices;
  for (const auto& [type, index] : found) devices.push_back({type, index});
  return devices;
}

// Returns the op's name from "op" or "plugin/op".
std::string op_of(const std::string& name) {
  return name.substr(name.rfind('/') + 1);
}

Report text_or_null(const std::string& text) {
  return text.empty() ? Report(nullptr) : Report(text);
}

// Returns what a plugin declares of the op. A binary has its documentation in its code, not in its
// note, so "doc" is null.
Report op_json(const OpClaim& op) {
  return {{"schema", op.schema},      {"doc", nullptr},          {"devices", op.devices},
          {"dtypes", op.dtypes},      {"shape", op.shape_rules}, {"flags", op.flags},
          {"gradients", op.gradients}};
}

Report op_json(const OpDecl& op) {
  return {{"schema", op.schema},      {"doc", text_or_null(op.doc)}, {"devices", op.devices},
          {"dtypes", op.dtypes},      {"shape", op.shape},           {"flags", op.flags},
          {"gradients", op.gradients}};
}

// Returns how an op that is a formula has computed its calls on the CPU in this process; null if it
// is none, or was not requested there yet. provider: the plugin that serves.
Report formula_json(const ChainRecord& record, const Candidate* provider) {
  if (record.device.type != OPDOCK_CPU || record.target == nullptr) return nullptr;
  FusedOp* const op = FusedOp::of(*record.target->op);
  if (op == nullptr) return nullptr;
  const std::array<size_t, 4> ways = op->cpu_ways();
  const auto count = [&](CpuWay way) { return ways[static_cast<size_t>(way)]; };
  Report level = nullptr;
#if defined(__x86_64__)
  // A plugin that was built for one level has no other.
  const int of_plugin = provider != nullptr ? provider->file.note->cpu_level : 1;
  level = "x86-64-v" + std::to_string(of_plugin > 1 ? of_plugin : simd_level());
#else
  (void)provider;
#endif
  return {{"plugin", count(CpuWay::kPlugin)},
          {"compiled", count(CpuWay::kCompiled)},
          {"interpreted", count(CpuWay::kInterpreter)},
          {"level", level}};
}

// Returns what the host's attention service has decided about the op's calls in this process.
Report attention_json(std::string_view op) {
  Report list = Report::array();
  for (const attention::Decision& each : attention::decisions_about(op)) {
    list.push_back({{"device", each.device},
                    {"form", each.form},
                    {"by", each.is_planned ? "cudnn" : "own"},
                    {"why", text_or_null(each.why)}});
  }
  return list;
}

}  // namespace

Candidate counted(const Candidate& candidate, const opdock_runtime& runtime) {
  Candidate copy = candidate;
  if (runtime.is_described() && copy.file.note) {
    count_compilation(copy.file, false, &copy.verdict);
  }
  return copy;
}

Report explanation(opdock_runtime* runtime, const std::string& name) {
  const std::shared_ptr<const Catalog> catalog = runtime->catalog();
  std::vector<CandidatePtr> candidates = catalog->providers(name);
  std::vector<SourcePtr> sources = catalog->source_providers(name);
  const bool is_op = !candidates.empty() || !sources.empty();
  if (!is_op) {
    for (const CandidatePtr& candidate : catalog->candidates()) {
      if (candidate->file.note && candidate->file.note->name == name) {
        candidates.push_back(candidate);
      }
    }
    for (const SourcePtr& source : catalog->sources()) {
      if (source->manifest && source->manifest->name == name) sources.push_back(source);
    }
    sort_best_first(&candidates);
    sort_best_first(&sources);
  }
  const bool found = !candidates.empty() || !sources.empty();
  Report json;
  json["name"] = name;
  json["kind"] = !found ? Report(nullptr) : Report(is_op ? "op" : "plugin");
  json["usable"] = false;
  json["chosen"] = Report::object();
  json["candidates"] = Report::array();
  CandidatePtr on_cpu;
  for (const CandidatePtr& found_one : candidates) {
    const auto candidate = std::make_shared<const Candidate>(counted(*found_one, *runtime));
    if (candidate->verdict.state == State::kUsable) json["usable"] = true;
    json["candidates"].push_back(summary(*candidate));
    if (const OpClaim* op = is_op ? claim_of(*candidate, op_of(name)) : nullptr) {
      json["candidates"].back()["op"] = op_json(*op);
    }
    for (const DeviceVerdict& device : candidate->verdict.devices) {
      if (candidate->verdict.state == State::kRejected || device.state != State::kUsable) continue;
      const std::string where = device_name(device);
      if (json["chosen"].contains(where)) continue;
      json["chosen"][where] = candidate->path;
      if (device.backend == Backend::kCpu) on_cpu = candidate;
    }
  }
  for (const SourcePtr& source : sources) {
    json["candidates"].push_back(summary(*source));
    for (const OpDecl& op : source->manifest->ops) {
      if (is_op && op.name == op_of(name)) json["candidates"].back()["op"] = op_json(op);
    }
  }
  json["chain"] = Report::array();
  if (is_op) {
    for (opdock_device device : devices_of(candidates, sources)) {
      const std::shared_ptr<const ChainRecord> record =
          function_table(runtime).explain(name, device);
      if (record == nullptr) continue;
      if (record->serves()) json["usable"] = true;
      json["chain"].push_back(to_json(*record));
      json["chain"].back()["formula"] = formula_json(*record, on_cpu.get());
    }
  }
  json["attention"] = attention_json(op_of(name));
  json["policy"] = to_json(runtime->settings());
  const std::vector<std::string> known = op_names(*catalog);
  json["known_ops"] = known;
  std::vector<std::string> names = known_plugins(*catalog);
  names.insert(names.end(), known.begin(), known.end());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  json["near_ops"] = found ? std::vector<std::string>() : similar_names(name, names);
  return json;
}

}  // namespace opdock
