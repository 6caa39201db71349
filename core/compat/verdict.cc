// SPDX-License-Identifier: Apache-2.0
#include "compat/verdict.h"

#include <algorithm>

#include "compat/system.h"

namespace opdock {
namespace {

// Returns the backends that the note claims or, without any, those of the images.
std::vector<Backend> backends_of(const FileFacts& file) {
  std::vector<Backend> backends;
  const auto add = [&](Backend backend) {
    if (std::find(backends.begin(), backends.end(), backend) == backends.end()) {
      backends.push_back(backend);
    }
  };
  if (file.note) {
    for (Backend backend : file.note->devices) add(backend);
  }
  if (backends.empty()) {
    for (const DeviceImage& image : file.images) add(image.backend);
  }
  if (backends.empty()) add(Backend::kCpu);
  return backends;
}

DeviceVerdict judge_gpu(const FileFacts& file, const Gpu& gpu, const MachineFacts& machine) {
  DeviceVerdict verdict{gpu.backend, gpu.index, State::kUsable, -1, {}};
  if (std::optional<Reason> reason = judge_least(file.note ? file.note->least_cuda : 0, gpu)) {
    verdict.state = State::kRejected;
    verdict.reasons.push_back(*std::move(reason));
    return verdict;
  }
  // Without any device part the plugin launches no kernel of its own: it copies memory, or calls a
  // library of the host. That is legal but seldom intended, so a notice says it.
  if (file.images.empty()) {
    verdict.reasons.push_back(make_reason(Code::kNoKernels, "no device image of any kind",
                                          "none, for ops that launch no kernels of their own"));
    return verdict;
  }
  verdict.image = best_image(file.images, gpu, machine, &verdict.reasons);
  verdict.state = worst(verdict.reasons);
  return verdict;
}

// It is unknown which GPU has which index: if the GPUs' verdicts differ, none can be given.
void doubt_order(std::vector<DeviceVerdict>* verdicts, const MachineFacts& machine) {
  const bool same = std::all_of(
      verdicts->begin(), verdicts->end(),
      [&](const DeviceVerdict& verdict) { return verdict.state == verdicts->front().state; });
  if (same) return;
  std::string names;
  for (const Gpu& gpu : machine.gpus) {
    if (gpu.backend != Backend::kCuda || names.find(gpu.arch) != names.npos) continue;
    names += (names.empty() ? "" : ", ") + gpu.arch;
  }
  for (DeviceVerdict& verdict : *verdicts) {
    verdict.state = State::kUndecided;
    verdict.image = -1;
    verdict.reasons.push_back(make_reason(Code::kGpuOrder, "GPUs " + names + " in unknown order",
                                          "a fixed order, or one answer for all of them"));
  }
}

std::vector<DeviceVerdict> judge_backend(Backend backend, const FileFacts& file,
                                         const MachineFacts& machine) {
  if (backend == Backend::kCpu) return {{Backend::kCpu, -1, State::kUsable, -1, {}}};
  std::vector<DeviceVerdict> verdicts;
  for (const Gpu& gpu : machine.gpus) {
    if (gpu.backend == backend) verdicts.push_back(judge_gpu(file, gpu, machine));
  }
  if (std::optional<Reason> without = reason_without(backend, machine))
    return {{backend, -1, State::kRejected, -1, {*std::move(without)}}};
  if (backend == Backend::kCuda && machine.gpu_order_uncertain) doubt_order(&verdicts, machine);
  return verdicts;
}

bool equal(const Reason& a, const Reason& b) {
  return a.code == b.code && a.found == b.found && a.wanted == b.wanted;
}

// Adds only reasons that are not there yet: eight equal GPUs give one reason, not eight.
void add_new(const std::vector<Reason>& more, std::vector<Reason>* reasons) {
  for (const Reason& reason : more) {
    if (std::none_of(reasons->begin(), reasons->end(),
                     [&](const Reason& known) { return equal(known, reason); })) {
      reasons->push_back(reason);
    }
  }
}

State combine(const std::vector<Reason>& file_reasons, const std::vector<DeviceVerdict>& devices) {
  const State file = worst(file_reasons);
  if (devices.empty()) return file;
  const auto any = [&](State state) {
    return std::any_of(devices.begin(), devices.end(),
                       [&](const DeviceVerdict& device) { return device.state == state; });
  };
  if (file == State::kRejected || (!any(State::kUsable) && !any(State::kUndecided))) {
    return State::kRejected;
  }
  return file == State::kUsable && any(State::kUsable) ? State::kUsable : State::kUndecided;
}

// Returns whether it is already clear that the file is no plugin for this machine.
bool is_foreign(const std::vector<Reason>& reasons) {
  return std::any_of(reasons.begin(), reasons.end(), [](const Reason& reason) {
    return reason.code == Code::kNotElf || reason.code == Code::kElfClass ||
           reason.code == Code::kElfMachine || reason.code == Code::kElfType;
  });
}

bool is_without_gpu(const DeviceVerdict& device) {
  return device.backend != Backend::kCpu && device.index < 0;
}

}  // namespace

std::optional<Reason> reason_without(Backend backend, const MachineFacts& machine) {
  for (const Gpu& gpu : machine.gpus)
    if (gpu.backend == backend) return std::nullopt;
  const bool cuda = backend == Backend::kCuda;
  const std::string vendor = cuda ? "CUDA" : "ROCm";
  const std::optional<Version>& driver = cuda ? machine.cuda_driver : machine.rocm;
  const std::string& problem = cuda ? machine.cuda_problem : machine.rocm_problem;
  if (driver) {
    return make_reason(Code::kNoGpu, problem.empty() ? "no visible " + vendor + " GPU" : problem,
                       "a GPU");
  }
  return make_reason(Code::kNoDriver, problem.empty() ? "no " + vendor + " driver" : problem,
                     "a " + vendor + " driver");
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

std::string_view to_text(State state) {
  switch (state) {
    case State::kUsable:
      return "usable";
    case State::kUndecided:
      return "undecided";
    case State::kRejected:
      return "rejected";
  }
  return "";
}

Verdict judge(const FileFacts& file, const MachineFacts& machine, Role role) {
  Verdict verdict;
  verdict.reasons = file.reasons;
  if (role == Role::kLibrary) {
    std::erase_if(verdict.reasons,
                  [](const Reason& reason) { return reason.code == Code::kNoteMissing; });
  }
  judge_system(file, machine, role, &verdict.reasons);
  for (Backend backend : backends_of(file)) {
    for (DeviceVerdict& device : judge_backend(backend, file, machine)) {
      verdict.devices.push_back(std::move(device));
    }
  }
  // A library also loads without a GPU, and its device code is ignored then.
  std::vector<DeviceVerdict> asked = verdict.devices;
  if (role == Role::kLibrary) std::erase_if(asked, is_without_gpu);
  verdict.state = combine(verdict.reasons, asked);
  for (const DeviceVerdict& device : asked) add_new(device.reasons, &verdict.reasons);
  if (role == Role::kLibrary && !is_foreign(verdict.reasons)) {
    verdict.reasons.push_back(
        make_reason(Code::kNoPlugin, "no Opdock note", "nothing: other native code has none"));
  }
  return verdict;
}

}  // namespace opdock
