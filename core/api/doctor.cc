// SPDX-License-Identifier: Apache-2.0
#include "api/doctor.h"

#include <unistd.h>

#include <map>

#include "base/mutex.h"
#include "base/texts.h"
#include "base/utf8.h"
#include "cache/cache.h"
#include "chain/chain_report.h"
#include "chain/readiness.h"
#include "discover/places.h"
#include "facts/environment.h"
#include "facts/tools.h"
#include "fmt/format.h"
#include "load/open.h"

namespace opdock {
namespace {

// Returns one line of the diagnosis. A missing item is not an error: it only limits what can be
// done.
Report check(const char* name, bool is_ok, const std::string& found, const char* used_for,
             const std::string& advice) {
  return {{"name", name},
          {"ok", is_ok},
          {"found", found},
          {"for", used_for},
          {"advice", is_ok ? "" : advice}};
}

bool is_compiler(const Tool& tool) {
  return tool.name == "g++" || tool.name == "clang++";
}

std::string tool_text(const Tool& tool) {
  return tool.version.empty() ? tool.path : fmt::format("{} ({})", tool.version, tool.path);
}

// Returns the label that `opdock doctor` shows for a tool.
const char* label_of(const std::string& name) {
  const NoFork no_fork;
  static const std::map<std::string, const char*> labels = {
      {"libcuda", "CUDA library"}, {"nvml", "NVML"},     {"meson", "Meson"},
      {"ninja", "Ninja"},          {"nvcc", "nvcc"},     {"nvrtc", "NVRTC"},
      {"hipcc", "hipcc"},          {"hiprtc", "hipRTC"}, {"python", "Python"},
      {"torch", "torch"},          {"cudnn", "cuDNN"}};
  return labels.at(name);
}

Report check_tool(const Tool& tool) {
  return check(label_of(tool.name), !tool.path.empty(),
               tool.path.empty() ? "not found" : tool_text(tool), tool.purpose.c_str(),
               "install it: " + tool.package);
}

// Returns one line for both compilers, because one of the two is enough.
Report check_compilers(const std::vector<Tool>& tools) {
  std::vector<std::string> found, packages;
  std::string purpose;
  for (const Tool& tool : tools) {
    if (!is_compiler(tool)) continue;
    if (!tool.path.empty()) found.push_back(tool.name + " " + tool_text(tool));
    packages.push_back(tool.package);
    purpose = tool.purpose;
  }
  return check("C++ compiler", !found.empty(),
               found.empty() ? "neither g++ nor clang++" : join(found), purpose.c_str(),
               fmt::format("install one: {}", fmt::join(packages, ", or ")));
}

std::string version_text(const MachineFacts& machine, const char* prefix) {
  const auto found = machine.symbol_versions.find(prefix);
  return found == machine.symbol_versions.end() ? "unknown" : found->second.text();
}

Report machine_json(const MachineFacts& machine) {
  Report json;
  json["cpu_arch"] = machine.cpu_arch;
  json["cpu_level"] = machine.cpu_level;
  json["cpu_features"] = machine.cpu_features;
  json["symbol_versions"] = Report::object();
  for (const auto& [prefix, version] : machine.symbol_versions) {
    json["symbol_versions"][prefix] = version.text();
  }
  json["cuda_driver"] = machine.cuda_driver ? Report(machine.cuda_driver->text()) : Report(nullptr);
  json["cuda_driver_release"] = machine.cuda_driver_release;
  json["cuda_problem"] = machine.cuda_problem;
  json["rocm"] = machine.rocm ? Report(machine.rocm->text()) : Report(nullptr);
  json["rocm_problem"] = machine.rocm_problem;
  json["gpus"] = Report::array();
  for (const Gpu& gpu : machine.gpus) {
    json["gpus"].push_back({{"backend", to_text(gpu.backend)},
                            {"index", gpu.index},
                            {"name", gpu.name},
                            {"arch", gpu.arch},
                            {"memory_bytes", gpu.memory_bytes}});
  }
  json["in_process"] = Report::object();
  for (const auto& [library, version] : machine.in_process) {
    json["in_process"][library] = version.text();
  }
  return json;
}

std::string gpu_text(const MachineFacts& machine, Backend backend) {
  std::vector<std::string> names;
  for (const Gpu& gpu : machine.gpus) {
    if (gpu.backend == backend) names.push_back(fmt::format("{} ({})", gpu.name, gpu.arch));
  }
  return join(names);
}

void add_gpu_checks(const MachineFacts& machine, Report* checks) {
  const std::string cuda = gpu_text(machine, Backend::kCuda);
  const std::string driver =
      machine.cuda_driver
          ? fmt::format("CUDA {} ({})", machine.cuda_driver->text(), machine.cuda_driver_release)
          : machine.cuda_problem;
  checks->push_back(check("NVIDIA driver", machine.cuda_driver.has_value(), driver,
                          "plugins' CUDA kernels",
                          "with an NVIDIA GPU, install its driver: apt install nvidia-driver "
                          "(Debian) or nvidia-driver-580-server (Ubuntu)"));
  checks->push_back(check("NVIDIA GPU", !cuda.empty(), cuda.empty() ? machine.cuda_problem : cuda,
                          "plugins' CUDA kernels",
                          "check CUDA_VISIBLE_DEVICES, and the container's GPU option"));
  const std::string rocm = gpu_text(machine, Backend::kRocm);
  checks->push_back(check(
      "AMD GPU", !rocm.empty(), rocm.empty() ? machine.rocm_problem : rocm, "plugins' HIP kernels",
      "with an AMD GPU, install its driver: the kernel's amdgpu module, and ROCm "
      "(apt install rocm from AMD's repository)"));
}

Report readiness_json(const MachineFacts& machine) {
  Report list = Report::array();
  for (const Readiness& one : judge_readiness(machine)) {
    list.push_back({{"name", one.name},
                    {"verdict", one.verdict()},
                    {"found", one.found},
                    {"needs", one.needs.empty() ? Report(nullptr) : Report(one.needs)},
                    {"reasons", to_json(one.reasons)}});
  }
  return list;
}

// Returns the places that set something: "OPDOCK_BUILD, /etc/opdock/config.toml:3".
std::string places_text(const Settings& settings) {
  std::vector<std::string> places;
  for (const Setting* setting : {&settings.build, &settings.jit, &settings.fallback,
                                 &settings.cuda_archs, &settings.hip_archs}) {
    if (setting->place != Setting().place) places.push_back(setting->place);
  }
  return places.empty() ? "defaults" : join(places);
}

Report cache_json() {
  std::vector<Reason> reasons;
  const CacheOptions options = cache_options_from_environment(&reasons);
  const std::unique_ptr<Cache> cache = Cache::open(options, &reasons);
  return {
      {"folder", options.folder.empty() ? Report(nullptr) : Report(escape_bytes(options.folder))},
      {"usable", !cache->folder().empty()},
      {"max_bytes", options.max_bytes},
      {"reasons", to_json(reasons)}};
}

}  // namespace

Report diagnosis(const Catalog& catalog, const MachineFacts& machine, const SearchOptions& search,
                 const Settings& settings, const std::vector<std::string>& setting_problems) {
  const std::vector<Tool> tools = find_tools(current_environment());
  Report json;
  json["version"] = OPDOCK_VERSION;
  json["abi"] = fmt::format("{}.{}", OPDOCK_ABI_MAJOR, OPDOCK_ABI_MINOR);
  Report& checks = json["checks"] = Report::array();
  checks.push_back(check("CPU", !machine.cpu_arch.empty(),
                         machine.cpu_level > 0
                             ? fmt::format("{} level {}", machine.cpu_arch, machine.cpu_level)
                             : machine.cpu_arch,
                         "plugins' CPU code", ""));
  checks.push_back(
      check("C library", true, "glibc " + version_text(machine, "GLIBC"), "loading plugins", ""));
  checks.push_back(check("libstdc++", machine.symbol_versions.contains("GLIBCXX"),
                         "GLIBCXX " + version_text(machine, "GLIBCXX"), "plugins in C++",
                         "install it: apt install libstdc++6"));
  add_gpu_checks(machine, &checks);
  bool has_compilers = false;
  for (const Tool& tool : tools) {
    if (!is_compiler(tool)) {
      checks.push_back(check_tool(tool));
    } else if (!has_compilers) {
      checks.push_back(check_compilers(tools));
      has_compilers = true;
    }
  }
  size_t usable = 0, undecided = 0;
  for (const std::shared_ptr<const Candidate>& candidate : catalog.candidates()) {
    usable += candidate->verdict.state == State::kUsable;
    undecided += candidate->verdict.state == State::kUndecided;
  }
  const size_t all = catalog.candidates().size();
  json["plugins"] = {{"found", all},
                     {"usable", usable},
                     {"undecided", undecided},
                     {"rejected", all - usable - undecided}};
  checks.push_back(check("plugins", usable > 0, fmt::format("{} usable of {} files", usable, all),
                         "calling ops",
                         all == 0 ? "install some, or name their folder in OPDOCK_PLUGIN_PATH"
                                  : "`opdock list --details` has each one's reasons"));
  // This line appears only if this process has loaded plugins; the `opdock` command's own process
  // never has.
  if (opened_files() != 0) {
    const std::vector<Reason> overwritten = overwritten_files();
    const size_t count = opened_files();
    std::vector<std::string> texts;
    for (const Reason& reason : overwritten) texts.push_back(reason.found);
    checks.push_back(check("loaded plugins", overwritten.empty(),
                           overwritten.empty() ? fmt::format("{}, as they were loaded", count)
                                               : fmt::format("{}", fmt::join(texts, "; ")),
                           "calling their ops",
                           overwritten.empty() ? "" : overwritten.front().advice));
  }
  for (const std::string& problem : setting_problems) {
    checks.push_back(check("settings", false, problem, "everything but this report",
                           "correct or remove what is named; until then other commands and calls "
                           "end with this error"));
  }
  if (setting_problems.empty()) {
    checks.push_back(check("settings", true, places_text(settings), "", ""));
  }
  json["tools"] = Report::array();
  for (const Tool& tool : tools) {
    json["tools"].push_back(
        {{"name", tool.name},
         {"path", tool.path.empty() ? Report(nullptr) : Report(tool.path)},
         {"version", tool.version.empty() ? Report(nullptr) : Report(tool.version)},
         {"for", tool.purpose},
         {"package", tool.package}});
  }
  json["ways"] = readiness_json(machine);
  json["cache"] = cache_json();
  json["search"] = Report::array();
  for (const Place& place : search_places(search)) {
    json["search"].push_back({{"path", escape_bytes(place.path)},
                              {"origin", place.origin},
                              {"exists", access(place.path.c_str(), F_OK) == 0}});
  }
  json["policy"] = to_json(settings);
  json["notices"] = to_json(catalog.notices());
  json["machine"] = machine_json(machine);
  return json;
}

}  // namespace opdock
