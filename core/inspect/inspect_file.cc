// SPDX-License-Identifier: Apache-2.0
#include "inspect/inspect_file.h"

#include <algorithm>

#include "compat/system.h"
#include "fmt/format.h"

namespace opdock {
namespace {

// Whether somebody meant it to be a plugin: it has a note, or what is left of one.
bool is_plugin(const InspectedFile& inspected) {
  if (inspected.file.note || inspected.file.exports_entry) return true;
  return std::any_of(
      inspected.verdict.reasons.begin(), inspected.verdict.reasons.end(), [](const Reason& reason) {
        return info(reason.code).stage == "note" && reason.code != Code::kNoteMissing;
      });
}

State worst(const std::vector<Reason>& reasons) {
  State state = State::kUsable;
  for (const Reason& reason : reasons) {
    const Severity severity = info(reason.code).severity;
    if (severity == Severity::kReject) return State::kRejected;
    if (severity == Severity::kUndecided) state = State::kUndecided;
  }
  return state;
}

void drop(Code code, std::vector<Reason>* reasons) {
  std::erase_if(*reasons, [code](const Reason& reason) { return reason.code == code; });
}

// GPU code where no GPU is: it is not known what it would have to run on.
void leave_unjudged(const FileFacts& file, DeviceVerdict* device) {
  std::string archs;
  for (const DeviceImage& image : file.images) {
    if (image.backend != device->backend || image.arch.empty() ||
        archs.find(image.arch) != archs.npos)
      continue;
    archs += (archs.empty() ? "" : " ") + image.arch;
  }
  device->state = State::kUsable;
  device->reasons = {make_reason(Code::kGpuUnjudged, "no GPU to judge it against",
                                 fmt::format("one, for {} code ({})", to_text(device->backend),
                                             archs.empty() ? "unknown" : archs))};
}

// A GPU that somebody describes is one that they want served; of those that are here, one will do.
void hold_to_all_gpus(Verdict* verdict) {
  for (const DeviceVerdict& device : verdict->devices) {
    if (device.index >= 0) verdict->state = std::max(verdict->state, device.state);
  }
}

Verdict judge_library(const FileFacts& file, const Surroundings& around, Verdict whole) {
  Verdict verdict;
  verdict.devices = std::move(whole.devices);
  verdict.reasons = file.reasons;
  judge_system(file, around.machine, &verdict.reasons);
  drop(Code::kNoteMissing, &verdict.reasons);
  drop(Code::kElfType, &verdict.reasons);
  State state = worst(verdict.reasons);
  bool any_usable = false, any_undecided = false;
  for (DeviceVerdict& device : verdict.devices) {
    if (device.index < 0 && device.backend != Backend::kCpu && around.machine.gpus.empty()) {
      leave_unjudged(file, &device);
    }
    any_usable = any_usable || device.state == State::kUsable;
    any_undecided = any_undecided || device.state == State::kUndecided;
    for (const Reason& reason : device.reasons) {
      const bool is_known =
          std::any_of(verdict.reasons.begin(), verdict.reasons.end(), [&](const Reason& other) {
            return other.code == reason.code && other.found == reason.found &&
                   other.wanted == reason.wanted;
          });
      if (!is_known) verdict.reasons.push_back(reason);
    }
  }
  if (!any_usable && !any_undecided) state = State::kRejected;
  if (!any_usable && state == State::kUsable) state = State::kUndecided;
  verdict.state = state;
  return verdict;
}

}  // namespace

InspectedFile inspect_file(const Files& files, const std::string& path,
                           const Surroundings& around) {
  InspectedFile inspected;
  inspected.file.path = path;
  const std::optional<OpenFile> open = files.open(path, &inspected.verdict.reasons);
  if (!open) return inspected;  // rejected
  inspected.file = read_file_facts(open->fd.get(), open->size, path, Depth::kInspect);
  inspected.verdict = judge(inspected.file, around.machine);
  if (!is_plugin(inspected)) {
    inspected.verdict = judge_library(inspected.file, around, std::move(inspected.verdict));
  }
  if (around.described) hold_to_all_gpus(&inspected.verdict);
  return inspected;
}

}  // namespace opdock
