// SPDX-License-Identifier: Apache-2.0
#include "runtime.h"

#include <sys/auxv.h>

#include <array>
#include <cstdlib>
#include <map>
#include <utility>

#include "commands.h"
#include "python_packages.h"

namespace opdock::cli {

void check(const std::function<opdock_status(char* error, uint32_t error_size)>& call) {
  std::array<char, 8192> error{};
  const opdock_status status = call(error.data(), static_cast<uint32_t>(error.size()));
  if (status == OPDOCK_OK) return;
  const std::string text(error.data());
  throw Failure{status, text.empty() ? opdock_status_name(status) : text};
}

opdock_options default_options(const std::string& plugin_path) {
  opdock_options options{};
  options.struct_size = sizeof options;
  if (!plugin_path.empty()) options.plugin_path = plugin_path.c_str();
  // The Python package's console script sets OPDOCK_PACKAGE_PATH to the folders that other packages
  // announce. Without it Python is asked, but only if the default places are searched.
  options.package_path = secure_getenv("OPDOCK_PACKAGE_PATH");
  if (options.package_path == nullptr && plugin_path.empty() &&
      std::getenv("OPDOCK_PLUGIN_PATH") == nullptr && getauxval(AT_SECURE) == 0) {
    static const std::string folders = package_folders();
    options.package_path = folders.c_str();
  }
  return options;
}

Runtime::Runtime(const std::string& plugin_path) : Runtime(default_options(plugin_path)) {}

Runtime::Runtime(const opdock_options& options) {
  check([&](char* error, uint32_t size) {
    return opdock_runtime_create(&options, &runtime_, error, size);
  });
}

Runtime::~Runtime() {
  opdock_runtime_destroy(runtime_);
}

void describe(const Runtime& runtime, const GpuMachine& machine) {
  Report request = Report::object();
  if (!machine.gpus.empty()) request["gpus"] = machine.gpus;
  if (!machine.driver.empty()) request["driver"] = machine.driver;
  if (!machine.cuda.empty()) request["cuda"] = machine.cuda;
  if (!machine.rocm.empty()) request["rocm"] = machine.rocm;
  if (request.empty()) return;
  check([&](char* error, uint32_t size) {
    return opdock_runtime_describe(runtime.get(), request.dump().c_str(), error, size);
  });
}

void name_gpus(const GpuMachine& machine, Report* report) {
  std::map<std::string, std::string> names;
  int numbers[2] = {0, 0};
  for (const std::string& gpu : machine.gpus) {
    const bool is_amd = gpu.starts_with("gfx");
    names[(is_amd ? "rocm:" : "cuda:") + std::to_string(numbers[is_amd]++)] = gpu;
  }
  const std::function<void(Report*)> visit = [&](Report* part) {
    if (part->is_string()) return;
    for (auto& [key, value] : part->items()) {
      const bool is_device = key == "device" && value.is_string();
      const auto name = is_device ? names.find(value.get<std::string>()) : names.end();
      if (name != names.end()) {
        value = name->second;
      } else if (value.is_structured()) {
        visit(&value);
      }
    }
  };
  if (names.empty()) return;
  visit(report);
  if (!report->contains("chosen")) return;
  Report chosen = Report::object();
  for (const auto& [device, path] : report->at("chosen").items()) {
    const auto name = names.find(device);
    chosen[name == names.end() ? device : name->second] = path;
  }
  report->at("chosen") = std::move(chosen);
}

Report read_report(
    const std::function<opdock_status(char** out, char* error, uint32_t error_size)>& call) {
  char* text = nullptr;
  check([&](char* error, uint32_t size) { return call(&text, error, size); });
  Report report = Report::parse(text, nullptr, false);
  opdock_free(text);
  return report;
}

}  // namespace opdock::cli
