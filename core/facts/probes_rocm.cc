// Finds AMD GPUs, as the kernel's KFD describes them under /sys/class/kfd, and ROCm's version.
// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/files.h"
#include "facts/arch.h"
#include "facts/probes.h"
#include "facts/visible_devices.h"
#include "fmt/format.h"

namespace opdock {
namespace {

std::string read_line(const std::string& path) {
  std::string text = read_file(path).value_or("");
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

// Reads lines of the form "name value".
std::map<std::string, uint64_t> read_properties(const std::string& path) {
  std::map<std::string, uint64_t> properties;
  std::ifstream file(path);
  std::string name;
  uint64_t value = 0;
  while (file >> name >> value) properties[name] = value;
  return properties;
}

// Returns the names of a folder's entries, shorter ones first and bytewise among equal lengths, so
// that numbers are in numeric order.
std::vector<std::string> entries(const std::string& folder) {
  std::vector<std::string> names;
  if (DIR* const stream = opendir(folder.c_str())) {
    while (const dirent* entry = readdir(stream)) {
      if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    }
    closedir(stream);
  }
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return names;
}

// Returns "gfx90a" for 90010, which means 9.0.10: the major number is decimal, minor and stepping
// are one hexadecimal digit each.
std::string processor_name(uint64_t version) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string name = "gfx" + std::to_string(version / 10000);
  name += kDigits[version / 100 % 100 & 15];
  name += kDigits[version % 100 & 15];
  return name;
}

// Returns LLVM's target ID, with the flags that the processor has, so that images which state a
// flag can be compared. SRAM ECC is bit 26 of KFD's capability word. XNACK is chosen per process:
// off unless HSA_XNACK asks for it.
std::string target_id(const std::string& processor, uint64_t capability,
                      const Environment& environment) {
  static constexpr std::string_view kEcc[] = {"gfx906", "gfx908", "gfx90a", "gfx940",
                                              "gfx941", "gfx942", "gfx950"};
  std::string id = processor;
  if (std::find(std::begin(kEcc), std::end(kEcc), processor) != std::end(kEcc)) {
    id += (capability >> 26 & 1) != 0 ? ":sramecc+" : ":sramecc-";
  }
  const bool has_xnack = processor.starts_with("gfx9") || processor.starts_with("gfx101");
  if (has_xnack) id += environment.variable("HSA_XNACK") == "1" ? ":xnack+" : ":xnack-";
  return id;
}

uint64_t local_memory(const std::string& node) {
  uint64_t bytes = 0;
  for (const std::string& bank : entries(node + "/mem_banks")) {
    std::map<std::string, uint64_t> bank_properties =
        read_properties(node + "/mem_banks/" + bank + "/properties");
    const uint64_t heap = bank_properties["heap_type"];
    if (heap == 1 || heap == 2) bytes += bank_properties["size_in_bytes"];  // the GPU's own memory
  }
  return bytes;
}

std::string uuid_text(uint64_t unique_id) {
  return unique_id == 0 ? std::string() : fmt::format("GPU-{:016x}", unique_id);
}

// A container may see every node of the machine although only some of the GPUs are given to it.
bool may_use(uint64_t render_minor, const Environment& environment) {
  if (render_minor == 0) return true;
  const std::string path = environment.dev + "/dri/renderD" + std::to_string(render_minor);
  return access(path.c_str(), R_OK | W_OK) == 0;
}

// Returns HSA_OVERRIDE_GFX_VERSION, with which ROCr treats every GPU as that version, in KFD's
// form: 100300 for "10.3.0". 0 if it is not set, or is a text that ROCr does not read.
uint64_t overriding_version(const Environment& environment) {
  const std::string text = environment.variable("HSA_OVERRIDE_GFX_VERSION").value_or("");
  unsigned major = 0, minor = 0, stepping = 0;
  int end = 0;
  if (std::sscanf(text.c_str(), "%3u.%2u.%2u%n", &major, &minor, &stepping, &end) != 3 ||
      static_cast<size_t>(end) != text.size() ||
      text.find_first_not_of("0123456789.") != text.npos || minor > 15 || stepping > 15) {
    return 0;
  }
  return uint64_t{major} * 10000 + minor * 100 + stepping;
}

std::vector<Gpu> list_gpus(const std::string& nodes, const Environment& environment,
                           std::string* problem) {
  const uint64_t override = overriding_version(environment);
  std::vector<Gpu> gpus;
  for (const std::string& name : entries(nodes)) {
    const std::string node = nodes + "/" + name;
    std::map<std::string, uint64_t> properties = read_properties(node + "/properties");
    uint64_t version = properties["gfx_target_version"];
    if (version == 0) continue;  // a CPU
    if (override != 0) version = override;
    if (!may_use(properties["drm_render_minor"], environment)) {
      *problem = "no permission for " + environment.dev + "/dri/renderD" +
                 std::to_string(properties["drm_render_minor"]) + "; join the group render";
      continue;
    }
    Gpu gpu{};
    gpu.backend = Backend::kRocm;
    const std::string processor = processor_name(version);
    gpu.name = read_line(node + "/name");
    if (gpu.name.empty()) gpu.name = processor;
    gpu.uuid = uuid_text(properties["unique_id"]);
    gpu.arch = target_id(processor, properties["capability"], environment);
    gpu.major = static_cast<int>(version / 10000);
    gpu.minor = static_cast<int>(version / 100 % 100);
    gpu.memory_bytes = local_memory(node);
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

void choose(const char* variable, const Environment& environment, std::vector<Gpu>* gpus,
            std::string* problem) {
  const std::optional<std::string> list = environment.variable(variable);
  if (!list) return;
  const VisibleDevices visible = parse_visible_devices(*list, static_cast<int>(gpus->size()));
  std::string why = visible.problem;
  std::vector<std::string> uuids;
  for (const Gpu& gpu : *gpus) uuids.push_back(gpu.uuid);
  std::vector<Gpu> chosen;
  for (int index : choose_visible(visible, uuids, &why)) chosen.push_back((*gpus)[index]);
  *gpus = std::move(chosen);
  if (!why.empty()) *problem = std::string(variable) + "=" + *list + ": " + why;
}

// Returns the version in /opt/rocm/.info/version, such as "6.2.0-66", or else that of the newest
// /opt/rocm-*.
std::optional<Version> rocm_version(const std::string& opt) {
  std::optional<Version> newest;
  for (const std::string& folder : entries(opt)) {
    if (!folder.starts_with("rocm")) continue;
    const std::string text = read_line(opt + "/" + folder + "/.info/version");
    const std::optional<Version> version = Version::parse(text.substr(0, text.find('-')));
    if (!version) continue;
    if (folder == "rocm") return version;
    if (!newest || *newest < *version) newest = version;
  }
  return newest;
}

}  // namespace

void probe_rocm(const Environment& environment, MachineFacts* facts) {
  facts->rocm = rocm_version(environment.opt);
  const std::string nodes = environment.sysfs + "/class/kfd/kfd/topology/nodes";
  if (access(nodes.c_str(), R_OK) != 0) {
    facts->rocm_problem = "no AMD GPU driver: KFD is not in " + environment.sysfs;
    return;
  }
  const std::string kfd = environment.dev + "/kfd";
  if (access(kfd.c_str(), R_OK | W_OK) != 0) {
    facts->rocm_problem = kfd + ": " + std::strerror(errno) + "; join the group render";
    return;
  }
  std::vector<Gpu> gpus = list_gpus(nodes, environment, &facts->rocm_problem);
  choose("ROCR_VISIBLE_DEVICES", environment, &gpus, &facts->rocm_problem);
  // HIP's own list refers to the GPUs that ROCr left. If that list is not set, HIP reads
  // CUDA_VISIBLE_DEVICES.
  const bool hip = environment.variable("HIP_VISIBLE_DEVICES").has_value();
  choose(hip ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES", environment, &gpus,
         &facts->rocm_problem);
  if (gpus.empty() && facts->rocm_problem.empty()) facts->rocm_problem = "no AMD GPU";
  for (size_t i = 0; i < gpus.size(); ++i) {
    gpus[i].index = static_cast<int>(i);
    facts->gpus.push_back(std::move(gpus[i]));
  }
}

}  // namespace opdock
