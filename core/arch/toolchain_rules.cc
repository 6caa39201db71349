// SPDX-License-Identifier: Apache-2.0
#include "arch/toolchain_rules.h"

#include <fmt/format.h>

#include <array>

namespace opdock {
namespace {

Reason with_advice(Code code, std::string found, std::string wanted, std::string advice) {
  Reason reason = make_reason(code, std::move(found), std::move(wanted));
  reason.advice = std::move(advice);
  return reason;
}

// Reduces "13.0.88" to 13.0, the part that decides compatibility.
Version release_of(const Version& version) {
  return Version{version.major(), version.minor()};
}

// The oldest driver release that runs a CUDA major, by minor version compatibility.
struct DriverRelease {
  uint32_t major;
  const char* release;
};
constexpr std::array<DriverRelease, 3> kReleases = {
    {{11, "450.80.02"}, {12, "525.60.13"}, {13, "580.65.06"}}};

std::string upgrade(uint32_t major) {
  for (const DriverRelease& row : kReleases)
    if (row.major == major) return fmt::format("upgrade the driver to {} or later", row.release);
  return fmt::format("upgrade the driver to one for CUDA {}", major);
}

}  // namespace

std::optional<Reason> check_driver(const Version& toolkit, ImageKind kind,
                                   const CudaDriver& driver) {
  if (!driver.cuda || toolkit.empty()) return std::nullopt;
  const Version wanted = release_of(toolkit), has = release_of(*driver.cuda);
  const std::string found = fmt::format("a driver for CUDA {}{}", has.text(),
                                        driver.release.empty() ? "" : ", " + driver.release);
  const std::string compat =
      fmt::format("on a data-centre GPU the package cuda-compat-{}-{} does too", wanted.major(),
                  wanted.minor());
  if (kind == ImageKind::kPtx) {
    if (wanted <= has) return std::nullopt;
    return with_advice(
        Code::kToolkitDriver, found, fmt::format("CUDA {} for PTX of that toolkit", wanted.text()),
        wanted.major() <= has.major()
            ? fmt::format("compile cubins for the GPU itself (no +PTX), or use CUDA {} or older",
                          has.text())
            : fmt::format("{} ({}), or use CUDA {} or older", upgrade(wanted.major()), compat,
                          has.text()));
  }
  const bool by_major = wanted.major() >= 11;
  if (by_major ? wanted.major() <= has.major() : wanted <= has) return std::nullopt;
  return with_advice(
      Code::kToolkitDriver, found,
      fmt::format("CUDA {} for cubins of CUDA {}",
                  by_major ? fmt::format("{}.0", wanted.major()) : wanted.text(), wanted.text()),
      fmt::format("{} ({}), or use CUDA {}.x", upgrade(wanted.major()), compat, has.major()));
}

bool has_forward_compatibility(const CudaDriver& driver) {
  const std::optional<Version> release = Version::parse(driver.release);
  if (!release || !driver.cuda) return false;
  for (const DriverRelease& row : kReleases)
    if (row.major == driver.cuda->major()) return *release < *Version::parse(row.release);
  return false;
}

std::optional<Reason> check_torch(const Version& toolkit, const TorchFacts& torch, Links links) {
  if (links == Links::kNothing || torch.version.empty() || toolkit.empty()) return std::nullopt;
  const char* library = links == Links::kTorch ? "libtorch" : "libcudart";
  const Version wanted = release_of(toolkit);
  if (!torch.cuda) {
    // A PyTorch without CUDA brings no second libcudart that would have to agree.
    if (links == Links::kCudart) return std::nullopt;
    return with_advice(
        Code::kToolkitTorch, fmt::format("PyTorch {} without CUDA", torch.version.text()),
        fmt::format("one built for CUDA {}, since the plugin links libtorch", wanted.major()),
        "install a PyTorch with CUDA, or build the plugin without libtorch");
  }
  const Version has = release_of(*torch.cuda);
  const bool same = wanted.major() == has.major() && (wanted.major() >= 11 || wanted == has);
  if (same) return std::nullopt;
  return with_advice(
      Code::kToolkitTorch,
      fmt::format("CUDA toolkit {} beside PyTorch {} for CUDA {}", wanted.text(),
                  torch.version.text(), has.text()),
      fmt::format("CUDA {} for a plugin that links {}",
                  wanted.major() >= 11 ? fmt::format("{}.x", has.major()) : has.text(), library),
      fmt::format(
          "use CUDA {} (set CUDA_HOME), or build the plugin without {}: a static cudart works "
          "beside any PyTorch",
          has.text(), library));
}

std::optional<Reason> check_host_compiler(const Version& toolkit,
                                          const std::optional<HostLimits>& limits,
                                          const HostCompiler& compiler) {
  if (!limits) return std::nullopt;
  const bool is_clang = compiler.name.find("clang") != std::string::npos;
  const uint32_t newest = is_clang ? limits->clang : limits->gcc;
  if (newest == 0) return std::nullopt;
  const std::string wanted =
      fmt::format("{} {} or older for nvcc {} ({})", is_clang ? "clang" : "gcc", newest,
                  release_of(toolkit).text(), limits->source);
  if (compiler.version.empty())
    return make_reason(Code::kToolUnknown, compiler.name + " without a version", wanted);
  if (compiler.version.major() <= newest) return std::nullopt;
  const std::string package = is_clang ? "clang" : "g++";
  return with_advice(
      Code::kBuildHostCompiler, fmt::format("{} {}", compiler.name, compiler.version.text()),
      wanted,
      fmt::format("apt install {0}-{1} and set CXX={2}-{1}, or use a newer CUDA toolkit", package,
                  newest, is_clang ? "clang++" : "g++"));
}

std::optional<Version> oldest_usable(const std::string& tool) {
  if (tool == "meson") return Version{1, 1};
  if (tool == "ninja") return Version{1, 8, 2};
  if (tool == "g++" || tool == "clang++") return Version{10};
  if (tool == "nvrtc") return Version{11, 2};
  if (tool == "nvcc") return Version{11, 0};
  return std::nullopt;
}

std::optional<Reason> check_tool(const std::string& tool, const Version& version) {
  const std::optional<Version> oldest = oldest_usable(tool);
  if (!oldest) return std::nullopt;
  const std::string wanted = fmt::format("{} {} or newer", tool, oldest->text());
  if (version.empty()) return make_reason(Code::kToolUnknown, tool + " without a version", wanted);
  if (*oldest <= version) return std::nullopt;
  const bool is_python = tool == "meson" || tool == "ninja";
  return with_advice(Code::kToolTooOld, fmt::format("{} {}", tool, version.text()), wanted,
                     is_python ? fmt::format("run `pip install '{}>={}'`", tool, oldest->text())
                               : fmt::format("install a newer {}, or put it first in PATH", tool));
}

std::optional<Reason> check_cuda_standard(const Version& nvcc, int standard) {
  const Version wanted = standard >= 20 ? Version{12, 0} : Version{11, 0};
  if (nvcc.empty() || wanted <= nvcc) return std::nullopt;
  return with_advice(
      Code::kToolTooOld, fmt::format("nvcc {}", release_of(nvcc).text()),
      fmt::format("nvcc {} for C++{} in .cu files", wanted.text(), standard),
      standard >= 20
          ? "use CUDA 12.0 or newer, or keep plugin.hpp out of .cu files (C++17 suffices)"
          : "use CUDA 11.0 or newer");
}

std::optional<Reason> check_rocm(const Version& hipcc, const std::optional<Version>& runtime) {
  if (!runtime || hipcc.empty() || hipcc.major() == runtime->major()) return std::nullopt;
  return with_advice(Code::kRocmRuntime, fmt::format("ROCm {} libraries", runtime->text()),
                     fmt::format("ROCm {}.x, since hipcc is {}", hipcc.major(), hipcc.text()),
                     fmt::format("use ROCm {0}.x for both: set ROCM_PATH to it", runtime->major()));
}

}  // namespace opdock
