// The function table's part in compiling kernels when a plugin asks for them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <map>

#include "base/mutex.h"
#include "chain/chain_report.h"
#include "chain/compile_context.h"
#include "chain/function_table.h"
#include "jit/plugin_source.h"
#include "report/json.h"
#include "schema/dtype.h"

namespace opdock {
namespace {

opdock_status call_status(const std::vector<Reason>& reasons) {
  for (const Reason& reason : reasons) {
    if (reason.code == Code::kCancelled) return OPDOCK_CANCELLED;
    if (reason.code == Code::kWithinItself) return OPDOCK_INVALID_ARGUMENT;
    if (reason.code == Code::kDriverFailed) return OPDOCK_DEVICE_ERROR;
  }
  return OPDOCK_INCOMPATIBLE;
}

// Kernels that this thread's current call could not compile.
struct Failed {
  Kernels* kernels;
  std::vector<Reason> reasons;
  bool given_up = false;
};
thread_local std::vector<Failed> failed_here;

struct Announced {
  Mutex mutex;
  std::map<std::string, std::atomic<bool>> all;
};
Announced& announced = *new Announced;

// Returns the flag that stderr already has a line saying that kernels of this plugin are compiled.
std::atomic<bool>* announced_of(const std::string& plugin) {
  const std::lock_guard lock(announced.mutex);
  return &announced.all[plugin];
}

}  // namespace

bool is_given_up(const Kernels* kernels, std::vector<Reason>* reasons) {
  for (const Failed& one : failed_here) {
    if (one.kernels != kernels || !one.given_up) continue;
    reasons->insert(reasons->end(), one.reasons.begin(), one.reasons.end());
    return true;
  }
  return false;
}

bool FunctionTable::give_up(const opdock_function& function, Target* target) {
  for (Failed& one : failed_here) {
    if (one.kernels != target->kernels || one.given_up) continue;
    auto* const kernels = dynamic_cast<CompiledKernels*>(one.kernels);
    if (kernels == nullptr || kernels->has_made()) return false;
    one.given_up = true;
    {
      const std::shared_ptr<Resolution> slot = resolution(function.name(), target->device);
      const std::lock_guard lock(slot->mutex);
      if (slot->record != nullptr && slot->record->target == target) {
        auto record = std::make_shared<ChainRecord>(*slot->record);
        record->target = nullptr;
        slot->record = std::move(record);
      }
    }
    function.forget(target);
    return true;
  }
  return false;
}

void FunctionTable::end_of_call() {
  failed_here.clear();
}

Status FunctionTable::make_kernels(const opdock_function& function, Target* target,
                                   const char* name) {
  auto* kernels = dynamic_cast<CompiledKernels*>(target->kernels);
  if (kernels == nullptr) return {};
  const Waiting waiting(runtime_->hooks());
  HookedProgress progress(runtime_->hooks(), announced_of(target->plugin));
  std::vector<Reason> reasons;
  const JitContext context = jit_context(runtime_, &progress, &reasons);
  const bool made = name == nullptr ? kernels->make_all(context, &reasons)
                                    : kernels->make(name, context, &reasons);
  if (made) return {};
  std::erase_if(reasons, [](const Reason& reason) {
    return info(reason.code).severity == Severity::kNotice;
  });
  std::string text = name == nullptr ? "kernels" : "kernel \"" + std::string(name) + "\"";
  text += " of plugin \"" + target->plugin + "\" for " + to_text(target->device) + ": ";
  for (const Reason& reason : reasons) {
    text += (&reason == &reasons.front() ? "" : "\n") + to_text(reason);
  }
  record_failure(function, *target, reasons);
  Report list = Report::array();
  for (const Reason& reason : reasons) {
    Report one;
    one["step"] = to_text(ChainStep::Kind::kJit);
    one.update(to_json(reason));
    list.push_back(std::move(one));
  }
  keep_reasons(std::move(list));
  const opdock_status status = call_status(reasons);
  if (status == OPDOCK_INCOMPATIBLE) {
    std::erase_if(failed_here, [&](const Failed& one) { return one.kernels == kernels; });
    failed_here.push_back({kernels, std::move(reasons)});
  }
  return {status, std::move(text)};
}

void FunctionTable::record_failure(const opdock_function& function, const Target& target,
                                   const std::vector<Reason>& reasons) {
  const std::shared_ptr<Resolution> slot = resolution(function.name(), target.device);
  const std::lock_guard lock(slot->mutex);
  if (slot->record == nullptr) return;
  auto record = std::make_shared<ChainRecord>(*slot->record);
  for (ChainStep& step : record->steps) {
    if (step.kind != ChainStep::Kind::kJit) continue;
    for (const Reason& reason : reasons) {
      if (reason.code == Code::kCancelled || reason.code == Code::kWithinItself) continue;
      const bool known = std::any_of(
          step.reasons.begin(), step.reasons.end(),
          [&](const StepReason& one) { return to_text(one.reason) == to_text(reason); });
      if (!known) step.reasons.push_back({target.plugin, "", reason});
    }
  }
  slot->record = std::move(record);
}

void FunctionTable::waiting(bool begins) {
  const Hooks& hooks = runtime_->hooks();
  if (hooks.waiting != nullptr) hooks.waiting(hooks.context, begins ? 1 : 0);
}

bool FunctionTable::cancelled() {
  const Hooks& hooks = runtime_->hooks();
  return hooks.cancelled != nullptr && hooks.cancelled(hooks.context) != 0;
}

}  // namespace opdock
