// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

namespace softgpu {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "OPDOCK_SOFTGPU: %s\n", why.c_str());
  std::_Exit(3);
}

json source() {
  const char* const text = std::getenv("OPDOCK_SOFTGPU");
  if (!text || !*text) return json::object();
  if (*text == '{') return json::parse(text);
  std::ifstream file(text);
  if (!file) refuse(std::string("cannot open ") + text);
  return json::parse(file);
}

std::string default_uuid(const Gpu& gpu) {
  const auto index = static_cast<size_t>(gpu.index);
  char text[64];
  if (gpu.amd) {
    std::snprintf(text, sizeof text, "GPU-%016zx", index + 1);
    return text;
  }
  std::snprintf(text, sizeof text, "GPU-%08zx-0000-4000-8000-%012zx", index + 1, index + 1);
  return text;
}

// Reads an architecture such as "gfx90a:sramecc+:xnack-": major 9, minor 0, stepping a. Waves have
// 64 lanes up to gfx9.
void read_amd_arch(const std::string& arch, Gpu* gpu) {
  const std::string processor = arch.substr(3, arch.find(':') - 3);
  if (processor.size() < 3) refuse("arch \"" + arch + "\" is not gfxNNN");
  gpu->amd = true;
  gpu->major = std::stoi(processor.substr(0, processor.size() - 2));
  gpu->minor = std::stoi(processor.substr(processor.size() - 2, 1), nullptr, 16);
  gpu->warp_size = gpu->major < 10 ? 64 : 32;
  // HIP's target ID states every feature that the processor has; adds those that `arch` leaves out.
  static constexpr std::string_view kEcc[] = {"906", "908", "90a", "940", "941", "942", "950"};
  const bool ecc = std::find(std::begin(kEcc), std::end(kEcc), processor) != std::end(kEcc);
  if (ecc && arch.find(":sramecc") == arch.npos) gpu->arch += ":sramecc+";
  const bool xnack = gpu->major == 9 || (gpu->major == 10 && gpu->minor == 1);
  const char* const wanted = std::getenv("HSA_XNACK");
  if (xnack && arch.find(":xnack") == arch.npos) {
    gpu->arch += wanted && std::string_view(wanted) == "1" ? ":xnack+" : ":xnack-";
  }
}

void read_arch(const std::string& arch, Gpu* gpu) {
  gpu->arch = arch;
  if (arch.starts_with("gfx")) return read_amd_arch(arch, gpu);
  if (!arch.starts_with("sm_")) refuse("arch \"" + arch + "\" is neither sm_NN nor gfxNNN");
  const int number = std::stoi(arch.substr(3));
  gpu->major = number / 10;
  gpu->minor = number % 10;
}

// Reads {"arch": "sm_90"} with the optional members name, uuid, memory, integrated,
// multiprocessors, attributes and mig.
Gpu gpu_from(const json& from, size_t index) {
  Gpu gpu;
  const std::string arch = from.at("arch").get<std::string>();
  read_arch(arch, &gpu);
  gpu.index = static_cast<int>(index);
  gpu.multiprocessors = from.value("multiprocessors", gpu.multiprocessors);
  gpu.name = from.value("name", "Stand-in " + arch);
  gpu.uuid = from.value("uuid", default_uuid(gpu));
  gpu.memory = from.value("memory", uint64_t{16} << 30);
  gpu.integrated = from.value("integrated", false);
  const json attributes = from.value("attributes", json::object());  // must outlive items()
  for (const auto& [attribute, value] : attributes.items()) {
    gpu.attributes[std::stoi(attribute)] = value.get<int>();
  }
  const auto multiprocessors = gpu.attributes.find(16);
  if (!gpu.amd && multiprocessors != gpu.attributes.end()) {
    gpu.multiprocessors = static_cast<unsigned>(multiprocessors->second);
  }
  for (const json& instance : from.value("mig", json::array())) {
    gpu.instances.push_back(
        {instance.at("uuid").get<std::string>(), instance.value("memory", uint64_t{4} << 30)});
  }
  return gpu;
}

Failure failure_from(const json& from) {
  Failure failure;
  failure.function = from.at("function").get<std::string>();
  failure.call = from.value("call", 0);
  failure.error = from.value("error", 0);
  failure.sticky = from.value("sticky", false);
  failure.hang = from.value("hang", false);
  failure.crash = from.value("crash", false);
  return failure;
}

Config read() {
  try {
    const json from = source();
    Config config;
    config.cuda_version = from.value("cuda", config.cuda_version);
    config.release = from.value("release", config.release);
    config.hip_version = from.value("hip", config.hip_version);
    for (const json& entry : from.value("gpus", json::array())) {
      Gpu gpu = gpu_from(entry, config.gpus.size() + config.amd_gpus.size());
      (gpu.amd ? config.amd_gpus : config.gpus).push_back(std::move(gpu));
    }
    config.code = from.value("code", "");
    config.seed = from.value("seed", config.seed);
    config.workers = from.value("workers", config.workers);
    config.steps = from.value("steps", config.steps);
    if (config.steps == 0) refuse("steps is 0, and a kernel needs some");
    config.counters = from.value("counters", "");
    config.findings = from.value("findings", "");
    config.leaks = from.value("leaks", false);
    config.order = from.value("order", std::vector<int>());
    for (const json& failure : from.value("failures", json::array())) {
      config.failures.push_back(failure_from(failure));
    }
    return config;
  } catch (const std::exception& error) {
    refuse(error.what());
  }
}

std::vector<Gpu> in_cuda_order() {
  const char* const variable = std::getenv("CUDA_DEVICE_ORDER");
  const bool by_bus = variable && std::string(variable) == "PCI_BUS_ID";
  if (by_bus || config().order.empty()) return config().gpus;
  std::vector<Gpu> gpus;
  for (int index : config().order) gpus.push_back(config().gpus.at(static_cast<size_t>(index)));
  return gpus;
}

// Implements as much of the driver's rules as tests need: numbers or complete UUIDs; the list ends
// at the first unknown one.
std::vector<Gpu> chosen_by(const char* name, const std::vector<Gpu>& all) {
  const char* const variable = std::getenv(name);
  if (!variable) return all;
  std::vector<Gpu> chosen;
  std::string list = variable;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string token = list.substr(0, comma);
    list.erase(0, comma + 1);
    const size_t before = chosen.size();
    for (size_t i = 0; i < all.size(); ++i) {
      if (token == std::to_string(i) || token == all[i].uuid) chosen.push_back(all[i]);
    }
    if (chosen.size() == before) break;
  }
  return chosen;
}

std::vector<Gpu> visible_amd() {
  const std::vector<Gpu> rocr = chosen_by("ROCR_VISIBLE_DEVICES", config().amd_gpus);
  return chosen_by(
      std::getenv("HIP_VISIBLE_DEVICES") ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES", rocr);
}

}  // namespace

const Config& config() {
  static const Config& config = *new Config(read());
  return config;
}

const std::vector<Gpu>& visible_gpus() {
  static const std::vector<Gpu>& gpus =
      *new std::vector<Gpu>(chosen_by("CUDA_VISIBLE_DEVICES", in_cuda_order()));
  return gpus;
}

const std::vector<Gpu>& visible_amd_gpus() {
  static const std::vector<Gpu>& gpus = *new std::vector<Gpu>(visible_amd());
  return gpus;
}

}  // namespace softgpu
