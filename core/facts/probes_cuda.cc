// Finds the CUDA driver and the GPUs that programs see.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <algorithm>

#include "facts/cuda_helper.h"
#include "facts/nvml.h"
#include "facts/probes.h"
#include "facts/visible_devices.h"

namespace opdock {
namespace {

bool alike(const Gpu& a, const Gpu& b) {
  return a.arch == b.arch && a.name == b.name && a.memory_bytes == b.memory_bytes;
}

bool all_alike(const std::vector<Gpu>& gpus) {
  return std::all_of(gpus.begin(), gpus.end(),
                     [&](const Gpu& gpu) { return alike(gpu, gpus.front()); });
}

void renumber(std::vector<Gpu>* gpus) {
  for (size_t i = 0; i < gpus->size(); ++i) (*gpus)[i].index = static_cast<int>(i);
}

// Returns at most one instance: CUDA shows a process no more than one MIG instance.
std::vector<Gpu> choose_instance(const VisibleDevices& visible, const NvmlFacts& nvml,
                                 std::string* problem) {
  std::vector<std::string> uuids;
  for (const NvmlFacts::MigInstance& instance : nvml.instances) uuids.push_back(instance.uuid);
  const std::vector<int> chosen = choose_visible(visible, uuids, problem);
  if (chosen.empty()) return {};
  const NvmlFacts::MigInstance& instance = nvml.instances[chosen.front()];
  Gpu gpu = nvml.gpus[instance.parent];
  gpu.name += " MIG";
  gpu.uuid = instance.uuid;
  gpu.memory_bytes = instance.memory_bytes;
  return {gpu};
}

// Applies CUDA_VISIBLE_DEVICES to NVML's list.
void choose_gpus(const std::string& list, const NvmlFacts& nvml, bool order_known,
                 MachineFacts* facts) {
  const VisibleDevices visible = parse_visible_devices(list, static_cast<int>(nvml.gpus.size()));
  std::string problem = visible.problem;
  if (!visible.tokens.empty() && visible.tokens.front().uuid.starts_with("MIG-")) {
    facts->gpus = choose_instance(visible, nvml, &problem);
  } else if (visible.by_number && !order_known && !visible.tokens.empty()) {
    // It is unknown which GPUs the numbers mean, so all are listed: any may be visible.
    facts->gpus = nvml.gpus;
    facts->gpu_order_uncertain = true;
  } else {
    std::vector<std::string> uuids;
    for (const Gpu& gpu : nvml.gpus) uuids.push_back(gpu.uuid);
    for (int index : choose_visible(visible, uuids, &problem)) {
      facts->gpus.push_back(nvml.gpus[index]);
    }
  }
  if (!problem.empty()) {
    facts->cuda_problem = "CUDA_VISIBLE_DEVICES=" + list + ": " + problem;
  }
}

void use_nvml(const NvmlFacts& nvml, const Environment& environment, MachineFacts* facts) {
  facts->cuda_driver = nvml.cuda;
  facts->cuda_driver_release = nvml.release;
  facts->cuda_problem = nvml.problem;
  // NVML orders GPUs by PCI bus id, CUDA by its own estimate of their speed unless
  // CUDA_DEVICE_ORDER says otherwise.
  const bool order_known = environment.variable("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" ||
                           nvml.gpus.size() < 2 || all_alike(nvml.gpus);
  if (const std::optional<std::string> list = environment.variable("CUDA_VISIBLE_DEVICES")) {
    choose_gpus(*list, nvml, order_known, facts);
  } else {
    facts->gpus = nvml.gpus;
    facts->gpu_order_uncertain = !order_known;
  }
  renumber(&facts->gpus);
  if (facts->gpus.empty() && facts->cuda_problem.empty()) facts->cuda_problem = "no NVIDIA GPU";
}

// Opening the library initialises nothing; the helper initialises it in its own process.
bool cuda_library_exists(const std::string& name) {
  return dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL) != nullptr;
}

}  // namespace

void probe_cuda(const Environment& environment, MachineFacts* facts) {
  const std::optional<std::string> list = environment.variable("CUDA_VISIBLE_DEVICES");
  const bool with_instances = list && list->starts_with("MIG-");
  const NvmlFacts nvml = ask_nvml(environment.nvml, with_instances);
  if (nvml.cuda) {
    use_nvml(nvml, environment, facts);
    return;
  }
  facts->cuda_problem = nvml.problem;
  if (nvml.no_driver || !cuda_library_exists(environment.cuda)) {
    if (!nvml.present) facts->cuda_problem = "no NVIDIA driver: " + nvml.problem;
    return;
  }
  ask_cuda_helper(environment, facts);
}

}  // namespace opdock
