// SPDX-License-Identifier: Apache-2.0
#include "chain/readiness.h"

#include <fmt/format.h>

#include <algorithm>

#include "arch/choose.h"
#include "arch/toolchain_rules.h"
#include "build/missing_files.h"
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

class ReadinessJudge {
 public:
  explicit ReadinessJudge(const MachineFacts& machine)
      : machine_(machine), environment_(current_environment()), found_(find_tools(environment_)) {
    driver_ = {machine.cuda_driver, machine.cuda_driver_release};
  }

  std::vector<Readiness> run() {
    Readiness built = source();  // finds the compiler
    return {binaries(),       nvrtc(), hiprtc(), formulas(),
            std::move(built), nvcc(),  hipcc(),  libtorch()};
  }

 private:
  const Tool& tool(const char* name) const {
    return *std::find_if(found_.begin(), found_.end(),
                         [&](const Tool& tool) { return tool.name == name; });
  }

  Version version_of(const char* name) const {
    return Version::parse(tool(name).version).value_or(Version());
  }

  Readiness binaries() const {
    Readiness result{"binary plugins", "on the CPU", {}, {}};
    for (const Gpu& gpu : machine_.gpus)
      append(&result.found, fmt::format("{}:{} ({})", to_text(gpu.backend), gpu.index, gpu.arch));
    if (has_forward_compatibility(driver_)) append(&result.found, "with cuda-compat");
    return result;
  }

  Readiness nvrtc() const {
    Readiness result{"run-time compilation, CUDA", "", {}, {}};
    std::vector<Reason> against;
    bool usable = false;
    for (const NvrtcFile& file : find_nvrtc_files(compiler_folders(), environment_, nullptr)) {
      std::vector<Reason> reasons;
      add(check_tool("nvrtc", file.version), &reasons);
      add(check_driver(file.version, ImageKind::kCubin, driver_), &reasons);
      const bool fits = !is_rejected(reasons);
      append(&result.found, fmt::format("NVRTC {}{} ({})", file.version.text(),
                                        fits ? "" : ", which is not used", file.path));
      std::vector<Reason>& kept = fits ? result.reasons : against;
      kept.insert(kept.end(), reasons.begin(), reasons.end());
      usable |= fits;
    }
    if (usable) return result;
    result.reasons = std::move(against);
    if (result.found.empty()) {
      result.reasons.push_back(
          make_reason(Code::kJitNoCompiler, "no NVRTC", "NVRTC 11.2 or newer"));
    }
    return result;
  }

  Readiness hiprtc() const {
    const Tool& library = tool("hiprtc");
    Readiness result{"run-time compilation, HIP", "", {}, {}};
    if (!library.path.empty()) {
      result.found = fmt::format("hipRTC {} ({})", library.version, library.path);
      return result;
    }
    Reason missing = make_reason(Code::kJitNoCompiler, "no hipRTC", "hipRTC");
    missing.advice = "install it: " + library.package;
    result.reasons.push_back(std::move(missing));
    return result;
  }

  // Judges whether formulas get compiled code on the CPU, where they are interpreted without it.
  // To be called after source().
  Readiness formulas() const {
    Readiness result{"run-time compilation, CPU", "", {}, {}};
    const BuildTools tools = find_compiler_tools(&result.reasons);
    if (tools.cpp.empty()) return result;
    result.found =
        fmt::format("{}, for formulas", compiler_.name.empty()
                                            ? tools.cpp.back()
                                            : named(compiler_.name.c_str(), compiler_.version));
    // A small one of those that the code of formulas includes.
    const std::string header = "hwy/detect_compiler_arch.h";
    if (!compiler_.name.empty() && !has_header(tools, header)) {
      Reason missing = make_reason(Code::kBuildHeaderMissing,
                                   tools.cpp.back() + " without " + header, "Highway's headers");
      missing.advice = package_of_header(header) + "; until then formulas are interpreted";
      result.reasons.push_back(std::move(missing));
    }
    return result;
  }

  // Judges what every build needs.
  Readiness source() {
    Readiness result{kSource, "", {}, {}};
    tools_ = find_build_tools(Languages{}, &result.reasons);
    // Without opdock-guard no program is started, so none can report its version.
    const bool can_ask = !tools_.guard.empty();
    compiler_ = ask_compiler(tools_);
    if (!tools_.cpp.empty()) {
      append(&result.found, compiler_.name.empty()
                                ? tools_.cpp.back()
                                : named(compiler_.name.c_str(), compiler_.version));
      if (compiler_.name.empty() && can_ask) {
        result.reasons.push_back(make_reason(
            Code::kBuildNoCompiler, tools_.cpp.back() + ", which does not report its version",
            "a compiler that works"));
      } else if (!compiler_.name.empty()) {
        add(check_tool(compiler_.name, compiler_.version), &result.reasons);
      }
    }
    for (const auto& [name, path] :
         {std::pair{"meson", tools_.meson}, std::pair{"ninja", tools_.ninja}}) {
      if (path.empty()) continue;
      const Version version = ask_version(tools_, path);
      append(&result.found, named(name, version));
      if (can_ask) add(check_tool(name, version), &result.reasons);
    }
    std::vector<Reason> cache_reasons;
    const CacheOptions options = cache_options_from_environment(&cache_reasons);
    const std::unique_ptr<Cache> cache = Cache::open(options, &cache_reasons);
    if (cache->folder().empty()) {
      result.reasons.push_back(make_reason(Code::kBuildNoCache));
    }
    if (is_rejected(result.reasons)) blocked_ = kSource;
    return result;
  }

  // Puts the compiler of a language into tools_, found as a build would find it. Returns false, and
  // the reason with the code `missing`, if there is none.
  bool find_compiler(bool Languages::* language, std::string BuildTools::* path, Code missing,
                     Readiness* result) {
    Languages languages;
    languages.*language = true;
    std::vector<Reason> reasons;
    tools_.*path = find_build_tools(languages, &reasons).*path;
    for (Reason& reason : reasons)
      if (reason.code == missing) result->reasons.push_back(std::move(reason));
    return !(tools_.*path).empty();
  }

  Readiness nvcc() {
    Readiness result{"building with nvcc", "", {}, blocked_};
    if (!find_compiler(&Languages::cuda, &BuildTools::nvcc, Code::kBuildNoNvcc, &result))
      return result;
    NvccFacts facts = ask_nvcc(tools_);
    // If nvcc was not run, use the version that its files state.
    if (tools_.guard.empty()) facts.version = version_of("nvcc");
    nvcc_ = facts.version;
    result.found = named("nvcc", facts.version);
    if (!facts.archs.targets.empty()) {
      CudaArchInputs inputs;
      inputs.sources = cuda_arch_sources("", "", environment_);
      inputs.gpus = machine_.gpus;
      inputs.compilers = {facts.archs};
      Reason reason{};
      if (const auto choice = choose_cuda_archs(inputs, &reason)) {
        append(&result.found, fmt::format("for {} ({})", choice->text(), choice->origin));
        result.reasons.insert(result.reasons.end(), choice->notices.begin(), choice->notices.end());
      } else {
        result.reasons.push_back(std::move(reason));
      }
    }
    add(check_tool("nvcc", facts.version), &result.reasons);
    add(check_cuda_standard(facts.version, 20), &result.reasons);
    add(check_driver(facts.version, ImageKind::kCubin, driver_), &result.reasons);
    if (!compiler_.name.empty()) {
      add(check_host_compiler(facts.version, facts.limits, {compiler_.name, compiler_.version}),
          &result.reasons);
    }
    return result;
  }

  Readiness hipcc() {
    Readiness result{"building with hipcc", "", {}, blocked_};
    if (!find_compiler(&Languages::hip, &BuildTools::hipcc, Code::kBuildNoHipcc, &result))
      return result;
    const Version version = version_of("hipcc");
    result.found = named("hipcc", version);
    add(check_rocm(version, Version::parse(tool("hiprtc").version)), &result.reasons);
    return result;
  }

  // Libtorch matters, and is checked, only if both PyTorch and nvcc are here.
  Readiness libtorch() const {
    const Tool& torch = tool("torch");
    Readiness result{"linking libtorch with nvcc", "", {}, {}};
    if (torch.path.empty() || nvcc_.empty()) {
      result.found = torch.path.empty() ? "no PyTorch here" : "no nvcc here";
      return result;
    }
    TorchFacts facts{Version::parse(torch.version).value_or(Version()), cuda_of_torch(torch.path)};
    result.found = fmt::format("PyTorch {}{}", torch.version,
                               facts.cuda ? " for CUDA " + facts.cuda->text() : std::string());
    add(check_torch(nvcc_, facts, Links::kTorch), &result.reasons);
    return result;
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

std::string Readiness::verdict() const {
  if (!needs.empty() || is_rejected(reasons)) return "not ready";
  const bool is_unsure = std::any_of(reasons.begin(), reasons.end(), [](const Reason& reason) {
    return info(reason.code).severity == Severity::kUndecided;
  });
  return is_unsure ? "unsure" : "ready";
}

std::vector<Readiness> judge_readiness(const MachineFacts& machine) {
  return ReadinessJudge(machine).run();
}

}  // namespace opdock
