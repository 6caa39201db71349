// SPDX-License-Identifier: Apache-2.0
#include "inspect/inspect_file.h"

#include <algorithm>

#include "fmt/format.h"
#include "link/library_pool.h"

namespace opdock {
namespace {

void drop(Code code, std::vector<Reason>* reasons) {
  std::erase_if(*reasons, [code](const Reason& reason) { return reason.code == code; });
}

// Leaves GPU code unjudged on a machine without a GPU, where it is not known what it would run on.
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

// Makes the verdict the worst of all GPUs'. If the user describes GPUs, each is to be served; of
// those that are here, one is enough.
void hold_to_all_gpus(Verdict* verdict) {
  for (const DeviceVerdict& device : verdict->devices) {
    if (device.index >= 0) verdict->state = std::max(verdict->state, device.state);
  }
}

}  // namespace

bool is_plugin(const FileFacts& file) {
  return file.note || file.exports_entry ||
         std::any_of(file.reasons.begin(), file.reasons.end(), [](const Reason& reason) {
           return info(reason.code).stage == "note" && reason.code != Code::kNoteMissing;
         });
}

State load_state(const std::vector<Reason>& reasons) {
  std::vector<Reason> others;
  std::copy_if(reasons.begin(), reasons.end(), std::back_inserter(others),
               [](const Reason& reason) { return info(reason.code).stage != "device"; });
  return worst(others);
}

State gpu_state(const FileFacts& file, const Verdict& verdict, bool described) {
  const bool is_library = !is_plugin(file);
  State best = State::kRejected, all = State::kUsable;
  bool any = false;
  for (const DeviceVerdict& device : verdict.devices) {
    const bool is_without_gpu = device.backend != Backend::kCpu && device.index < 0;
    if (is_library && is_without_gpu) continue;
    any = true;
    best = std::min(best, device.state);
    if (device.index >= 0) all = std::max(all, device.state);
  }
  if (!any) return State::kUsable;
  return described ? std::max(best, all) : best;
}

void count_compilation(const FileFacts& file, bool described, Verdict* verdict) {
  bool any = false;
  for (DeviceVerdict& device : verdict->devices) {
    if (device.index < 0 || !has_code(device.reasons, Code::kSourceOnly)) continue;
    any = true;
    for (const Reason& taken : device.reasons) {
      std::erase_if(verdict->reasons, [&](const Reason& one) {
        return one.code == taken.code && one.found == taken.found && one.wanted == taken.wanted;
      });
    }
    device.state = State::kUsable;
    device.reasons = {make_reason(Code::kCompiledLater)};
  }
  if (!any) return;
  verdict->reasons.push_back(make_reason(Code::kCompiledLater));
  verdict->state = std::max(load_state(verdict->reasons), gpu_state(file, *verdict, described));
}

Verdict judge_native(FileFacts* file, const JudgedMachine& around, Linkers* linkers) {
  file->link = linkers->link(*file);
  Verdict verdict = judge(*file, around.machine, Role::kLibrary);
  if (around.machine.gpus.empty()) {
    for (DeviceVerdict& device : verdict.devices) {
      if (device.backend == Backend::kCpu) continue;
      leave_unjudged(*file, &device);
      // The reason that the file is no plugin stays the last one.
      const bool is_told = has_code(verdict.reasons, Code::kNoPlugin);
      verdict.reasons.insert(verdict.reasons.end() - (is_told ? 1 : 0), device.reasons.begin(),
                             device.reasons.end());
    }
  }
  if (around.described) hold_to_all_gpus(&verdict);
  return verdict;
}

InspectedFile inspect_file(const Files& files, const std::string& path, const JudgedMachine& around,
                           Linkers* linkers) {
  InspectedFile inspected;
  inspected.file.path = path;
  const std::optional<OpenFile> open = files.open(path, &inspected.verdict.reasons);
  if (!open) return inspected;  // rejected
  inspected.file = read_file_facts(open->fd.get(), open->size, path, Depth::kInspect);
  const bool is_whole = std::none_of(
      inspected.file.reasons.begin(), inspected.file.reasons.end(), [](const Reason& reason) {
        return info(reason.code).stage == "file" && info(reason.code).severity == Severity::kReject;
      });
  if (inspected.file.library != nullptr && is_whole) {
    LibraryPool::shared().put(open->identity, inspected.file.library);  // other files may need it
  }
  if (inspected.file.is_program) drop(Code::kElfType, &inspected.file.reasons);
  if (is_plugin(inspected.file)) {
    inspected.file.link = linkers->link(inspected.file);
    inspected.verdict = judge(inspected.file, around.machine);
    if (around.described) hold_to_all_gpus(&inspected.verdict);
    count_compilation(inspected.file, around.described, &inspected.verdict);
  } else {
    inspected.verdict = judge_native(&inspected.file, around, linkers);
  }
  return inspected;
}

}  // namespace opdock
