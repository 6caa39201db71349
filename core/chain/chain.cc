// SPDX-License-Identifier: Apache-2.0
#include "chain/chain.h"

#include <algorithm>
#include <optional>

#include "compat/verdict.h"
#include "schema/dtype.h"

namespace opdock {
namespace {

using CandidatePtr = std::shared_ptr<const Candidate>;

std::string describe(const Candidate& candidate) {
  return candidate.file.note->name + " " + candidate.file.note->version.text() + " (" +
         candidate.path + ")";
}

void add_reasons(const Candidate& candidate, const std::vector<Reason>& reasons, ChainStep* step) {
  for (const Reason& reason : reasons) {
    const CodeInfo& code = info(reason.code);
    if (code.severity == Severity::kNotice && code.stage != "jit" && code.stage != "cache")
      continue;
    step->reasons.push_back(reason_of(candidate, reason));
  }
}

// Returns whether the program asked to stop, or a hook called by the work needs the work's result.
// Nothing more is tried then, and the next call starts again.
bool was_cancelled(const ChainStep& step) {
  return std::any_of(step.reasons.begin(), step.reasons.end(), [](const StepReason& one) {
    return one.reason.code == Code::kCancelled || one.reason.code == Code::kWithinItself;
  });
}

class Run {
 public:
  Run(opdock_runtime* runtime, const ChainRequest& wanted, const opdock_function* function,
      HookedProgress* progress)
      : runtime_(runtime), wanted_(wanted), function_(function), progress_(progress) {
    record_.device = wanted.device;
    record_.dry = function == nullptr;
    providers_ = runtime->catalog()->providers(wanted.name);
  }

  ChainRecord run() {
    // Try nothing without such a GPU: whatever was loaded, compiled or built could not be used.
    if (std::optional<Reason> without = reason_without_gpu(); without && !record_.dry) {
      ChainStep& step = record_.steps.emplace_back();
      step.kind = ChainStep::Kind::kBinary;
      step.outcome = ChainStep::Outcome::kFailed;
      step.text = "none is tried";
      step.reasons.push_back({"", "", *std::move(without)});
      return std::move(record_);
    }
    const bool source_first = runtime_->settings().build.value == "always";
    if (source_first) take(ChainStep::Kind::kBuild);
    take(ChainStep::Kind::kBinary);
    take(ChainStep::Kind::kJit);
    if (!source_first) take(ChainStep::Kind::kBuild);
    take(ChainStep::Kind::kReference);
    return std::move(record_);
  }

 private:
  std::optional<Reason> reason_without_gpu() const {
    const int32_t type = wanted_.device.type;
    if (type != OPDOCK_CUDA && type != OPDOCK_ROCM) return std::nullopt;
    return reason_without(static_cast<Backend>(type), *runtime_->machine());
  }

  void take(ChainStep::Kind kind) {
    if (record_.cancelled) return;
    if (record_.serves()) {
      record_.steps.push_back({kind, ChainStep::Outcome::kNotNeeded, "not needed", {}, {}});
      return;
    }
    if (kind == ChainStep::Kind::kBinary) binary();
    if (kind == ChainStep::Kind::kJit) jit();
    if (kind == ChainStep::Kind::kBuild) {
      take_build_step(runtime_, wanted_, record_.dry, progress_, &record_);
    }
    if (kind == ChainStep::Kind::kReference) {
      take_reference_step(runtime_, wanted_, function_, &record_);
    }
    record_.cancelled = record_.cancelled || was_cancelled(record_.steps.back());
  }

  void binary() {
    ChainStep& step = record_.steps.emplace_back();
    step.kind = ChainStep::Kind::kBinary;
    step.outcome = ChainStep::Outcome::kFailed;
    step.text = providers_.empty() ? "no shared object provides it" : "none fits";
    for (const CandidatePtr& candidate : providers_) {
      std::vector<Reason> reasons = reasons_against(*candidate, wanted_);
      if (reasons.empty() && !record_.dry) {
        record_.target = load_target(candidate, wanted_, runtime_, false, progress_, &reasons);
      }
      if (record_.target != nullptr || (record_.dry && reasons.empty())) {
        step.outcome = ChainStep::Outcome::kUsed;
        step.text = describe(*candidate);
        return;
      }
      add_reasons(*candidate, reasons, &step);
    }
  }

  void jit() {
    ChainStep& step = record_.steps.emplace_back();
    step.kind = ChainStep::Kind::kJit;
    step.outcome = ChainStep::Outcome::kSkipped;
    step.text = wanted_.device.type == OPDOCK_CPU
                    ? "the CPU needs no device code"
                    : "no plugin that fits otherwise has source for " + to_text(wanted_.device);
    for (const CandidatePtr& candidate : providers_) {
      if (!can_compile(*candidate, wanted_)) continue;
      step.outcome = ChainStep::Outcome::kFailed;
      step.text = "the device code could not be made";
      std::vector<Reason> reasons;
      if (record_.dry) {
        const std::string denied = jit_denied(runtime_);
        if (denied.empty()) {
          step.outcome = ChainStep::Outcome::kUsed;
          step.text = "the device code of " + describe(*candidate) + " would be compiled";
          return;
        }
        reasons.push_back(make_reason(Code::kJitPolicy, denied, "OPDOCK_JIT=auto"));
      } else {
        record_.target = load_target(candidate, wanted_, runtime_, true, progress_, &reasons);
      }
      if (record_.target != nullptr) {
        step.outcome = ChainStep::Outcome::kUsed;
        step.text = "the device code of " + describe(*candidate) + ", compiled for " +
                    to_text(wanted_.device);
        // The step serves, but it is still reported that it uses PTX for an older GPU, or no longer
        // does.
        std::erase_if(reasons, [](const Reason& reason) {
          return reason.code != Code::kArchPtx && reason.code != Code::kArchKnown;
        });
        for (const Reason& reason : reasons) step.reasons.push_back(reason_of(*candidate, reason));
        return;
      }
      add_reasons(*candidate, reasons, &step);
    }
  }

  opdock_runtime* runtime_;
  const ChainRequest& wanted_;
  const opdock_function* function_;
  HookedProgress* progress_;
  std::vector<CandidatePtr> providers_;
  ChainRecord record_;
};

std::string_view title(ChainStep::Kind kind) {
  switch (kind) {
    case ChainStep::Kind::kBinary:
      return "binary plugin";
    case ChainStep::Kind::kJit:
      return "run-time compilation";
    case ChainStep::Kind::kBuild:
      return "build from source";
    case ChainStep::Kind::kReference:
      return "reference";
  }
  return "";
}

}  // namespace

std::string_view to_text(ChainStep::Kind kind) {
  switch (kind) {
    case ChainStep::Kind::kBinary:
      return "binary";
    case ChainStep::Kind::kJit:
      return "jit";
    case ChainStep::Kind::kBuild:
      return "build";
    case ChainStep::Kind::kReference:
      return "reference";
  }
  return "";
}

std::string_view to_text(ChainStep::Outcome outcome) {
  switch (outcome) {
    case ChainStep::Outcome::kUsed:
      return "used";
    case ChainStep::Outcome::kFailed:
      return "failed";
    case ChainStep::Outcome::kSkipped:
      return "skipped";
    case ChainStep::Outcome::kNotNeeded:
      return "not-needed";
  }
  return "";
}

bool ChainRecord::serves() const {
  return std::any_of(steps.begin(), steps.end(), [](const ChainStep& step) {
    return step.outcome == ChainStep::Outcome::kUsed;
  });
}

std::string ChainRecord::story() const {
  std::string text;
  size_t number = 0;
  for (const ChainStep& step : steps) {
    if (!text.empty()) text += '\n';
    text +=
        "  " + std::to_string(++number) + ". " + std::string(title(step.kind)) + ": " + step.text;
    const StepReason* last = nullptr;
    for (const StepReason& one : step.reasons) {
      const bool is_same = last != nullptr && last->path == one.path;
      if (!is_same && !one.path.empty()) {
        text += "\n     " + (one.plugin.empty() ? "" : one.plugin + " ") + "(" + one.path + ")";
      }
      text += "\n     " + to_text(one.reason);
      last = &one;
    }
    for (const std::string& change : step.changed) text += "\n     since the last build: " + change;
  }
  return text;
}

std::vector<Reason> ChainRecord::reasons() const {
  std::vector<Reason> all;
  for (const ChainStep& step : steps) {
    for (const StepReason& one : step.reasons) all.push_back(one.reason);
  }
  return all;
}

ChainRecord run_chain(opdock_runtime* runtime, const ChainRequest& wanted,
                      const opdock_function* function, HookedProgress* progress) {
  const Waiting waiting(runtime->hooks());  // files are hashed, libraries opened, drivers started
  return Run(runtime, wanted, function, progress).run();
}

std::string jit_denied(opdock_runtime* runtime) {
  const Setting& jit = runtime->settings().jit;
  return jit.value == "never" ? "jit = \"never\" (" + jit.place + ")" : "";
}

}  // namespace opdock
