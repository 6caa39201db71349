// SPDX-License-Identifier: Apache-2.0
#include "chain/routes.h"

#include <fmt/format.h>

#include <algorithm>

#include "arch/choose.h"
#include "arch/toolchain_rules.h"
#include "build/tool_versions.h"
#include "cache/cache.h"
#include "facts/tools.h"
#include "facts/torch.h"
#include "jit/nvrtc_files.h"

namespace opdock {
namespace {

void add(std::optional<Reason> reason, std::vector<Reason>* reasons) {
  if (reason) reasons->push_back(std::move(*reason));
}

bool is_rejected(const std::vector<Reason>& reasons) {
  return std::any_of(reasons.begin(), reasons.end(), [](const Reason& reason) {
    return info(reason.code).severity == Severity::kReject;
  });
}

void append(std::string* list, const std::string& item) {
  if (!item.empty()) *list += (list->empty() ? "" : ", ") + item;
}

std::string named(const char* name, const Version& version) {
  return version.empty() ? name : fmt::format("{} {}", name, version.text());
}

constexpr char kSource[] = "building from source";

class RouteJudge {
 public:
  explicit RouteJudge(const MachineFacts& machine)
      : machine_(machine), environment_(current_environment()), found_(find_tools(environment_)) {
    driver_ = {machine.cuda_driver, machine.cuda_driver_release};
  }

  std::vector<BuildRoute> run() {
    return {binaries(), nvrtc(), hiprtc(), source(), nvcc(), hipcc(), libtorch()};
  }

 private:
  const Tool& tool(const char* name) const {
    return *std::find_if(found_.begin(), found_.end(),
                         [&](const Tool& tool) { return tool.name == name; });
  }

  Version version_of(const char* name) const {
    return Version::parse(tool(name).version).value_or(Version());
  }

  BuildRoute binaries() const {
    BuildRoute route{"binary plugins", "on the CPU", {}, {}};
    for (const Gpu& gpu : machine_.gpus)
      append(&route.found, fmt::format("{}:{} ({})", to_text(gpu.backend), gpu.index, gpu.arch));
    if (has_forward_compatibility(driver_)) append(&route.found, "with cuda-compat");
    return route;
  }

  BuildRoute nvrtc() const {
    BuildRoute route{"run-time compilation, CUDA", "", {}, {}};
    std::vector<Reason> against;
    bool usable = false;
    for (const NvrtcFile& file : find_nvrtc_files(compiler_folders(), environment_, nullptr)) {
      std::vector<Reason> reasons;
      add(check_tool("nvrtc", file.version), &reasons);
      add(check_driver(file.version, ImageKind::kCubin, driver_), &reasons);
      const bool fits = !is_rejected(reasons);
      append(&route.found, fmt::format("NVRTC {}{} ({})", file.version.text(),
                                       fits ? "" : ", which is not used", file.path));
      std::vector<Reason>& kept = fits ? route.reasons : against;
      kept.insert(kept.end(), reasons.begin(), reasons.end());
      usable |= fits;
    }
    if (usable) return route;
    route.reasons = std::move(against);
    if (route.found.empty()) {
      Reason missing = make_reason(Code::kJitNoCompiler, "no NVRTC", "NVRTC 11.2 or newer");
      missing.advice = "install it: " + tool("nvrtc").package;
      route.reasons.push_back(std::move(missing));
    }
    return route;
  }

  BuildRoute hiprtc() const {
    const Tool& library = tool("hiprtc");
    BuildRoute route{"run-time compilation, HIP", "", {}, {}};
    if (!library.path.empty()) {
      route.found = fmt::format("hipRTC {} ({})", library.version, library.path);
      return route;
    }
    Reason missing = make_reason(Code::kJitNoCompiler, "no hipRTC", "hipRTC");
    missing.advice = "install it: " + library.package;
    route.reasons.push_back(std::move(missing));
    return route;
  }

  // Judges what every build needs.
  BuildRoute source() {
    BuildRoute route{kSource, "", {}, {}};
    tools_ = find_build_tools(Languages{}, &route.reasons);
    // Without opdock-guard no program is started, so none can report its version.
    const bool can_ask = !tools_.guard.empty();
    compiler_ = ask_compiler(tools_);
    if (!tools_.cpp.empty()) {
      append(&route.found, compiler_.name.empty()
                               ? tools_.cpp.back()
                               : named(compiler_.name.c_str(), compiler_.version));
      if (compiler_.name.empty() && can_ask) {
        route.reasons.push_back(make_reason(
            Code::kBuildNoCompiler, tools_.cpp.back() + ", which does not report its version",
            "a compiler that works"));
      } else if (!compiler_.name.empty()) {
        add(check_tool(compiler_.name, compiler_.version), &route.reasons);
      }
    }
    for (const auto& [name, path] :
         {std::pair{"meson", tools_.meson}, std::pair{"ninja", tools_.ninja}}) {
      if (path.empty()) continue;
      const Version version = ask_version(tools_, path);
      append(&route.found, named(name, version));
      if (can_ask) add(check_tool(name, version), &route.reasons);
    }
    std::vector<Reason> cache_reasons;
    const CacheOptions options = cache_options_from_environment(&cache_reasons);
    const std::unique_ptr<Cache> cache = Cache::open(options, &cache_reasons);
    if (cache->folder().empty()) {
      route.reasons.push_back(make_reason(Code::kBuildNoCache, "no usable cache folder",
                                          "a folder to build in and to keep the result"));
    }
    if (is_rejected(route.reasons)) blocked_ = kSource;
    return route;
  }

  // Puts the compiler of a language into tools_, found as a build would find it. Returns false, and
  // the reason with the code `missing`, if there is none.
  bool find_compiler(bool Languages::* language, std::string BuildTools::* path, Code missing,
                     BuildRoute* route) {
    Languages languages;
    languages.*language = true;
    std::vector<Reason> reasons;
    tools_.*path = find_build_tools(languages, &reasons).*path;
    for (Reason& reason : reasons)
      if (reason.code == missing) route->reasons.push_back(std::move(reason));
    return !(tools_.*path).empty();
  }

  BuildRoute nvcc() {
    BuildRoute route{"building with nvcc", "", {}, blocked_};
    if (!find_compiler(&Languages::cuda, &BuildTools::nvcc, Code::kBuildNoNvcc, &route))
      return route;
    NvccFacts facts = ask_nvcc(tools_);
    // If nvcc was not run, use the version that its files state.
    if (tools_.guard.empty()) facts.version = version_of("nvcc");
    nvcc_ = facts.version;
    route.found = named("nvcc", facts.version);
    if (!facts.archs.targets.empty()) {
      CudaArchInputs inputs;
      inputs.sources = cuda_arch_sources("", "", environment_);
      inputs.gpus = machine_.gpus;
      inputs.compilers = {facts.archs};
      Reason reason{};
      if (const auto choice = choose_cuda_archs(inputs, &reason)) {
        append(&route.found, fmt::format("for {} ({})", choice->text(), choice->origin));
        route.reasons.insert(route.reasons.end(), choice->notices.begin(), choice->notices.end());
      } else {
        route.reasons.push_back(std::move(reason));
      }
    }
    add(check_tool("nvcc", facts.version), &route.reasons);
    add(check_cuda_standard(facts.version, 20), &route.reasons);
    add(check_driver(facts.version, ImageKind::kCubin, driver_), &route.reasons);
    if (!compiler_.name.empty()) {
      add(check_host_compiler(facts.version, facts.limits, {compiler_.name, compiler_.version}),
          &route.reasons);
    }
    return route;
  }

  BuildRoute hipcc() {
    BuildRoute route{"building with hipcc", "", {}, blocked_};
    if (!find_compiler(&Languages::hip, &BuildTools::hipcc, Code::kBuildNoHipcc, &route))
      return route;
    const Version version = version_of("hipcc");
    route.found = named("hipcc", version);
    add(check_rocm(version, Version::parse(tool("hiprtc").version)), &route.reasons);
    return route;
  }

  // Libtorch matters, and is checked, only if both PyTorch and nvcc are here.
  BuildRoute libtorch() const {
    const Tool& torch = tool("torch");
    BuildRoute route{"linking libtorch with nvcc", "", {}, {}};
    if (torch.path.empty() || nvcc_.empty()) {
      route.found = torch.path.empty() ? "no PyTorch here" : "no nvcc here";
      return route;
    }
    TorchFacts facts{Version::parse(torch.version).value_or(Version()), cuda_of_torch(torch.path)};
    route.found = fmt::format("PyTorch {}{}", torch.version,
                              facts.cuda ? " for CUDA " + facts.cuda->text() : std::string());
    add(check_torch(nvcc_, facts, Links::kTorch), &route.reasons);
    return route;
  }

  const MachineFacts& machine_;
  const Environment environment_;
  const std::vector<Tool> found_;
  CudaDriver driver_;
  BuildTools tools_;
  CompilerVersion compiler_;
  Version nvcc_;
  std::string blocked_;  // kSource if nothing can be built at all
};

}  // namespace

std::string BuildRoute::verdict() const {
  if (!needs.empty() || is_rejected(reasons)) return "not ready";
  const bool is_unsure = std::any_of(reasons.begin(), reasons.end(), [](const Reason& reason) {
    return info(reason.code).severity == Severity::kUndecided;
  });
  return is_unsure ? "unsure" : "ready";
}

std::vector<BuildRoute> find_routes(const MachineFacts& machine) {
  return RouteJudge(machine).run();
}

}  // namespace opdock
