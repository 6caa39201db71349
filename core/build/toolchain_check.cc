// SPDX-License-Identifier: Apache-2.0
#include "build/toolchain_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "arch/choose.h"
#include "base/texts.h"
#include "facts/machine.h"
#include "facts/tools.h"
#include "facts/torch.h"

namespace opdock {
namespace {

bool is_reject(const Reason& reason) {
  return info(reason.code).severity == Severity::kReject;
}

Links links_of(const Manifest& manifest) {
  Links links = Links::kNothing;
  for (const LibraryClaim& claim : manifest.libraries) {
    if (claim.library == "torch") return Links::kTorch;
    if (claim.library == "cudart") links = Links::kCudart;
  }
  return links;
}

class ToolchainCheck {
 public:
  ToolchainCheck(const Manifest& manifest, const BuildOptions& options, const ToolchainFacts& facts)
      : manifest_(manifest), options_(options), facts_(facts) {}

  BuildCheck run() {
    const Languages languages = languages_of(manifest_, options_);
    check_libraries();
    if (languages.cuda || languages.device_images) check_least();
    if (languages.cuda) check_nvcc();
    if (languages.device_images) check_nvrtc();
    if (languages.hip) check_hipcc();
    return std::move(out_);
  }

 private:
  void add(std::optional<Reason> reason, bool is_fatal) {
    if (!reason) return;
    std::vector<Reason>& list = is_fatal && is_reject(*reason) ? out_.errors : out_.warnings;
    const bool is_known = std::any_of(list.begin(), list.end(), [&](const Reason& other) {
      // Compilers that make PTX in place of the same architecture count separately.
      return other.code == reason->code && other.found == reason->found &&
             (reason->code != Code::kArchPtx || other.wanted == reason->wanted);
    });
    if (!is_known) list.push_back(std::move(*reason));
  }

  void check_libraries() {
    for (const auto& [name, problem] : facts_.no_packages) {
      Reason reason = make_reason(Code::kBuildNoLibrary,
                                  fmt::format("no library {} by pkg-config: {}", name, problem),
                                  fmt::format("{}.pc, as plugin.toml names it", name));
      add(std::move(reason), true);
    }
    for (const std::string& name : facts_.no_libraries) {
      Reason reason =
          make_reason(Code::kBuildNoLibrary, fmt::format("no library {} for -l{}", name, name),
                      fmt::format("lib{0}.so or lib{0}.a where the linker looks", name));
      reason.advice = "install the package that has it, or correct its name in plugin.toml";
      add(std::move(reason), true);
    }
  }

  // Checks the list against the plugin's least architecture. This needs no compiler.
  void check_least() {
    CudaArchInputs inputs;
    inputs.sources = {{origin(), options_.cuda_archs}};
    inputs.least = manifest_.build.least_cuda;
    Reason reason{};
    if (!choose_cuda_archs(inputs, &reason) && reason.code == Code::kArchBelowLeast)
      add(std::move(reason), true);
  }

  std::string origin() const {
    return options_.arch_origin.empty() ? "--archs" : options_.arch_origin;
  }

  // Returns the architectures that these compilers will be asked for; nullopt if they cannot make
  // them.
  std::optional<CudaArchChoice> choose(std::vector<CompilerArchs> compilers) {
    CudaArchInputs inputs;
    inputs.sources = {{origin(), options_.cuda_archs}};
    inputs.compilers = std::move(compilers);
    inputs.gpu_numbers = gpu_numbers_of(options_.gpu_archs);
    inputs.least = manifest_.build.least_cuda;
    Reason reason{};
    std::optional<CudaArchChoice> choice = choose_cuda_archs(inputs, &reason);
    if (!choice) {
      add(std::move(reason), true);
      return std::nullopt;
    }
    for (const Reason& notice : choice->notices) add(notice, false);
    return choice;
  }

  void check_nvcc() {
    const NvccFacts& nvcc = facts_.nvcc;
    add(check_cuda_standard(nvcc.version, 20), true);  // plugins/meson.build asks for C++20
    add(check_tool("nvcc", nvcc.version), true);
    if (!facts_.compiler.name.empty()) {
      add(check_host_compiler(nvcc.version, nvcc.limits,
                              {facts_.compiler.name, facts_.compiler.version}),
          true);
    }
    add(check_torch(nvcc.version, facts_.torch, links_of(manifest_)), true);
    add(check_driver(nvcc.version, ImageKind::kCubin, facts_.driver), options_.must_run_here);
    if (nvcc.archs.targets.empty()) return;
    const std::optional<CudaArchChoice> choice = choose({nvcc.archs});
    if (!choice) return;
    const bool has_ptx = std::any_of(choice->targets.begin(), choice->targets.end(),
                                     [](const CudaTarget& target) { return target.ptx; });
    // A GPU here that is newer than the compiler can run only the PTX.
    const bool has_newer_gpu =
        std::any_of(choice->notices.begin(), choice->notices.end(),
                    [](const Reason& notice) { return notice.code == Code::kArchPtx; });
    if (has_ptx && !is_refused_by_driver())
      add(check_driver(nvcc.version, ImageKind::kPtx, facts_.driver),
          options_.must_run_here && has_newer_gpu);
  }

  bool is_refused_by_driver() const {
    return check_driver(facts_.nvcc.version, ImageKind::kCubin, facts_.driver).has_value();
  }

  void check_nvrtc() {
    std::vector<CompilerArchs> compilers;
    for (const NvrtcKnowledge& one : facts_.nvrtcs)
      compilers.push_back(archs_of_nvrtc(one.version, one.numbers));
    if (compilers.empty()) {
      Reason missing =
          make_reason(Code::kJitNoCompiler,
                      manifest_.device ? "no NVRTC: the device source is packed alone"
                                       : "no NVRTC: the kernels of formulas are not packed",
                      "one that knows " + options_.cuda_archs);
      missing.advice += "; or let it be compiled on first use";
      return add(std::move(missing), false);
    }
    const std::optional<CudaArchChoice> choice = choose(compilers);
    if (!choice) return;
    for (const CudaTarget& target : choice->targets) {
      // opdock-pack uses the oldest NVRTC that knows the target.
      const NvrtcKnowledge* oldest = nullptr;
      for (size_t i = 0; i < compilers.size(); ++i) {
        const NvrtcKnowledge& one = facts_.nvrtcs[i];
        if (!compilers[i].knows(target)) continue;
        if (oldest == nullptr || one.version < oldest->version) oldest = &one;
      }
      if (oldest == nullptr) continue;
      add(check_driver(oldest->version, ImageKind::kCubin, facts_.driver), false);
    }
  }

  void check_hipcc() {
    add(check_rocm(facts_.hipcc, facts_.rocm), options_.must_run_here);
    if (facts_.unknown_hip.empty()) return;
    const std::string names = join(facts_.unknown_hip);
    Reason reason =
        make_reason(Code::kBuildArch,
                    fmt::format("{} in {} = \"{}\"", names,
                                options_.hip_origin.empty() ? "--hip-archs" : options_.hip_origin,
                                options_.hip_archs),
                    fmt::format("processors that hipcc{} knows",
                                facts_.hipcc.empty() ? "" : " " + facts_.hipcc.text()));
    reason.advice = "leave it out, or use a ROCm that knows it";
    add(std::move(reason), true);
  }

  const Manifest& manifest_;
  const BuildOptions& options_;
  const ToolchainFacts& facts_;
  BuildCheck out_;
};

}  // namespace

BuildCheck check_toolchain(const Manifest& manifest, const BuildOptions& options,
                           const ToolchainFacts& facts) {
  return ToolchainCheck(manifest, options, facts).run();
}

ToolchainFacts ask_toolchain(const Manifest& manifest, const BuildOptions& options,
                             const BuildTools& tools) {
  ToolchainFacts facts;
  const Languages languages = languages_of(manifest, options);
  for (const std::string& package : languages.packages)
    if (std::string problem = ask_package(tools, package); !problem.empty())
      facts.no_packages.emplace_back(package, std::move(problem));
  facts.no_libraries = not_linked(tools, manifest.build.plain_libraries());
  if (!languages.cuda && !languages.hip && !languages.device_images) return facts;
  const MachineFacts machine = probe_machine();
  facts.driver = {machine.cuda_driver, machine.cuda_driver_release};
  if (languages.cuda && !tools.nvcc.empty()) {
    facts.compiler = ask_compiler(tools);
    facts.nvcc = ask_nvcc(tools);
    if (links_of(manifest) != Links::kNothing) {
      const TorchInstall torch = find_torch(current_environment(), machine);
      facts.torch = {torch.version, torch.cuda};
    }
  }
  if (languages.device_images) facts.nvrtcs = ask_nvrtcs(tools);
  if (languages.hip && !tools.hipcc.empty()) {
    facts.hipcc = ask_hipcc(tools);
    for (const Tool& tool : find_tools(current_environment()))
      if (tool.name == "hiprtc") facts.rocm = Version::parse(tool.version);
    facts.unknown_hip = unknown_to_hipcc(tools, options.hip_archs);
  }
  return facts;
}

}  // namespace opdock
