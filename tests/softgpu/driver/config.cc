// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

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

std::string default_uuid(size_t index) {
  char text[64];
  std::snprintf(text, sizeof text, "GPU-%08zx-0000-4000-8000-%012zx", index + 1, index + 1);
  return text;
}

// {"arch": "sm_90"} and, where wanted, name, uuid, memory, integrated, attributes, mig.
Gpu gpu_from(const json& from, size_t index) {
  Gpu gpu;
  const std::string arch = from.at("arch").get<std::string>();
  if (!arch.starts_with("sm_")) refuse("arch \"" + arch + "\" is not sm_NN");
  const int number = std::stoi(arch.substr(3));
  gpu.major = number / 10;
  gpu.minor = number % 10;
  gpu.name = from.value("name", "Stand-in " + arch);
  gpu.uuid = from.value("uuid", default_uuid(index));
  gpu.memory = from.value("memory", uint64_t{16} << 30);
  gpu.integrated = from.value("integrated", false);
  const json attributes = from.value("attributes", json::object());  // items() refers to it
  for (const auto& [attribute, value] : attributes.items()) {
    gpu.attributes[std::stoi(attribute)] = value.get<int>();
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
    for (const json& gpu : from.value("gpus", json::array())) {
      config.gpus.push_back(gpu_from(gpu, config.gpus.size()));
    }
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

// Enough of the driver's rules for tests: numbers or whole UUIDs, the first one unknown ends it.
std::vector<Gpu> visible() {
  const std::vector<Gpu> all = in_cuda_order();
  const char* const variable = std::getenv("CUDA_VISIBLE_DEVICES");
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

}  // namespace

const Config& config() {
  static const Config& config = *new Config(read());
  return config;
}

const std::vector<Gpu>& visible_gpus() {
  static const std::vector<Gpu>& gpus = *new std::vector<Gpu>(visible());
  return gpus;
}

}  // namespace softgpu
