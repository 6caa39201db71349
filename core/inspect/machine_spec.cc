// SPDX-License-Identifier: Apache-2.0
#include "inspect/machine_spec.h"

#include <elf.h>

#include <algorithm>
#include <array>

#include "facts/arch.h"

namespace opdock {
namespace {

struct DriverBranch {
  uint32_t branch;
  uint32_t major, minor;  // the CUDA version that it supports
};

// Source: NVIDIA, "CUDA Toolkit Release Notes", the tables of toolkits and their drivers.
constexpr std::array<DriverBranch, 21> kBranches = {
    {{450, 11, 0}, {455, 11, 1}, {460, 11, 2}, {465, 11, 3}, {470, 11, 4}, {495, 11, 5},
     {510, 11, 6}, {515, 11, 7}, {520, 11, 8}, {525, 12, 0}, {530, 12, 1}, {535, 12, 2},
     {545, 12, 3}, {550, 12, 4}, {555, 12, 5}, {560, 12, 6}, {565, 12, 7}, {570, 12, 8},
     {575, 12, 9}, {580, 13, 0}, {590, 13, 1}}};
constexpr uint32_t kBetweenBranches = 5;  // NVIDIA's branch numbers are multiples of it

// Processors that have a feature that can be switched, by ROCm's names in target IDs. GPUs come
// with sramecc on and xnack off. Source: LLVM, "User Guide for AMDGPU Backend", Processors and
// Target ID.
constexpr std::string_view kSramecc[] = {"gfx906", "gfx908", "gfx90a", "gfx940",
                                         "gfx941", "gfx942", "gfx950"};
constexpr std::string_view kXnack[] = {
    "gfx900", "gfx902", "gfx904", "gfx906", "gfx908",  "gfx909",  "gfx90a",  "gfx90c",
    "gfx940", "gfx941", "gfx942", "gfx950", "gfx1010", "gfx1011", "gfx1012", "gfx1013"};

template <size_t N>
bool is_among(const std::string& name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::optional<Version> numbers(const std::string& text, size_t least_parts) {
  const size_t dots = static_cast<size_t>(std::count(text.begin(), text.end(), '.'));
  if (text.find('+') != text.npos || dots + 1 < least_parts) return std::nullopt;
  return Version::parse(text);
}

uint16_t elf_machine(const std::string& arch) {
  return arch == "x86_64" ? EM_X86_64 : arch == "aarch64" ? EM_AARCH64 : 0;
}

// Returns 3 for "x86-64-v3"; 0: no such level.
int cpu_level(const std::string& text) {
  constexpr std::string_view kPrefix = "x86-64-v";
  if (text == "x86-64") return 1;
  if (!text.starts_with(kPrefix) || text.size() != kPrefix.size() + 1) return 0;
  const int level = text.back() - '0';
  return level >= 1 && level <= 4 ? level : 0;
}

// Parses "sm_90" or "9.0". A GPU has an architecture without a suffix, so "sm_90a" is taken for
// sm_90.
std::optional<Gpu> parse_gpu(const std::string& text) {
  Gpu gpu{};
  if (const std::optional<CudaArch> cuda = parse_cuda_gpu(text)) {
    gpu.backend = Backend::kCuda;
    gpu.arch = to_text(CudaArch{false, cuda->major, cuda->minor, '\0'});
    gpu.major = cuda->major;
    gpu.minor = cuda->minor;
    gpu.tegra = is_tegra(gpu.major, gpu.minor);
    return gpu;
  }
  const std::optional<GfxArch> gfx = parse_gfx_arch(text);
  if (!gfx || gfx->is_generic()) return std::nullopt;
  const std::optional<GfxVersion> version = gfx_version(gfx->processor);
  if (!version) return std::nullopt;
  gpu.backend = Backend::kRocm;
  gpu.major = static_cast<int>(version->major);
  gpu.minor = static_cast<int>(version->minor);
  gpu.arch = gfx->processor;
  if (is_among(gfx->processor, kSramecc)) {
    gpu.arch += gfx->sramecc.value_or(true) ? ":sramecc+" : ":sramecc-";
  }
  if (is_among(gfx->processor, kXnack)) {
    gpu.arch += gfx->xnack.value_or(false) ? ":xnack+" : ":xnack-";
  }
  return gpu;
}

std::string quote(const std::string& text) {
  return "\"" + text + "\"";
}

std::optional<SpecProblem> check_driver(const std::string& driver) {
  const std::optional<Version> version = numbers(driver, 1);
  const uint32_t newest = kBranches.back().branch;
  const std::string range = "a release of NVIDIA's driver, such as 570 or 570.86, from " +
                            std::to_string(kBranches.front().branch) + " to " +
                            std::to_string(newest);
  if (!version) return SpecProblem{"driver", quote(driver), range, ""};
  if (cuda_of_driver(version->major())) return std::nullopt;
  std::string found = quote(driver);
  if (version->major() > newest) found += ", of which is not known what CUDA it supports";
  return SpecProblem{"driver", found, range,
                     "say with --cuda which CUDA version nvidia-smi shows for it"};
}

std::optional<SpecProblem> check_version(const char* name, const std::string& text,
                                         const char* wanted) {
  if (text.empty() || numbers(text, 2)) return std::nullopt;
  return SpecProblem{name, quote(text), wanted, ""};
}

}  // namespace

bool MachineSpec::is_given() const {
  return !gpus.empty() || !driver.empty() || !cuda.empty() || !glibc.empty() ||
         !libstdcxx.empty() || !arch.empty() || !cpu.empty() || !rocm.empty();
}

std::optional<Version> cuda_of_driver(uint32_t branch) {
  if (branch < kBranches.front().branch) return std::nullopt;
  if (branch >= kBranches.back().branch + kBetweenBranches) return std::nullopt;
  // A number between two branches is a later release of the older one.
  const auto after =
      std::upper_bound(kBranches.begin(), kBranches.end(), branch,
                       [](uint32_t value, const DriverBranch& row) { return value < row.branch; });
  const DriverBranch& row = *(after - 1);
  return Version{row.major, row.minor};
}

std::optional<SpecProblem> check_spec(const MachineSpec& spec) {
  for (const std::string& gpu : spec.gpus) {
    if (parse_gpu(gpu)) continue;
    const bool is_ptx = gpu.starts_with("compute_");
    return SpecProblem{"gpu", quote(gpu), "an architecture such as sm_100, 10.0 or gfx90a:xnack-",
                       is_ptx ? "name the GPU's own: sm_" + gpu.substr(8) : ""};
  }
  if (!spec.driver.empty() && !spec.cuda.empty()) {
    return SpecProblem{"driver", quote(spec.driver) + " with cuda " + quote(spec.cuda),
                       "one of the two", "leave one out: the driver decides which CUDA there is"};
  }
  if (!spec.driver.empty()) {
    if (std::optional<SpecProblem> problem = check_driver(spec.driver)) return problem;
  }
  for (const std::optional<SpecProblem>& problem :
       {check_version("cuda", spec.cuda, "a version of CUDA such as 12.8"),
        check_version("glibc", spec.glibc, "a version of the GNU C library such as 2.28"),
        check_version("libstdcxx", spec.libstdcxx,
                      "the number of libstdc++'s newest GLIBCXX symbol version, such as 3.4.25"),
        check_version("rocm", spec.rocm, "a version of ROCm such as 6.2")}) {
    if (problem) return problem;
  }
  if (!spec.arch.empty() && elf_machine(spec.arch) == 0) {
    return SpecProblem{"arch", quote(spec.arch), "x86_64 or aarch64", ""};
  }
  if (!spec.cpu.empty() && cpu_level(spec.cpu) == 0) {
    return SpecProblem{"cpu", quote(spec.cpu), "x86-64-v1, x86-64-v2, x86-64-v3 or x86-64-v4", ""};
  }
  if (!spec.cpu.empty() && spec.arch == "aarch64") {
    return SpecProblem{"cpu", quote(spec.cpu) + " with arch " + quote(spec.arch),
                       "arch \"x86_64\", whose levels these are", ""};
  }
  return std::nullopt;
}

MachineFacts described_machine(const MachineSpec& spec, const MachineFacts& here) {
  if (!spec.is_given()) return here;
  MachineFacts machine = here;
  machine.cuda_driver.reset();
  machine.cuda_driver_release.clear();
  machine.cuda_problem = "the machine that is described has no driver of NVIDIA's";
  machine.rocm.reset();
  machine.rocm_problem = "the machine that is described has no ROCm";
  machine.gpus.clear();
  machine.gpu_order_uncertain = false;
  if (!spec.cpu.empty() && spec.arch.empty()) machine.cpu_arch = "x86_64";
  if (!spec.arch.empty()) machine.cpu_arch = spec.arch;
  machine.elf_machine = elf_machine(machine.cpu_arch);
  if (machine.cpu_arch != here.cpu_arch) {
    machine.cpu_level = machine.cpu_arch == "x86_64" ? 1 : 0;
    machine.cpu_features.clear();
    machine.symbol_versions.clear();
  }
  if (!spec.cpu.empty()) machine.cpu_level = cpu_level(spec.cpu);
  // Another C library means another distribution, with other compiler libraries.
  if (!spec.glibc.empty() || !spec.libstdcxx.empty()) {
    for (const char* prefix : {"GLIBCXX", "CXXABI", "GCC"}) machine.symbol_versions.erase(prefix);
  }
  if (!spec.glibc.empty()) machine.symbol_versions["GLIBC"] = *numbers(spec.glibc, 2);
  if (!spec.libstdcxx.empty()) machine.symbol_versions["GLIBCXX"] = *numbers(spec.libstdcxx, 2);
  if (!spec.driver.empty()) {
    machine.cuda_driver = cuda_of_driver(numbers(spec.driver, 1)->major());
    machine.cuda_driver_release = spec.driver;
  }
  if (!spec.cuda.empty()) machine.cuda_driver = numbers(spec.cuda, 2);
  if (!spec.rocm.empty()) machine.rocm = numbers(spec.rocm, 2);
  int indices[2] = {0, 0};
  for (const std::string& text : spec.gpus) {
    Gpu gpu = *parse_gpu(text);
    gpu.index = indices[gpu.backend == Backend::kRocm]++;
    (gpu.backend == Backend::kCuda ? machine.cuda_problem : machine.rocm_problem).clear();
    machine.gpus.push_back(std::move(gpu));
  }
  return machine;
}

}  // namespace opdock
