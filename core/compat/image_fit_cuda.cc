// Judges cubins and PTX against an NVIDIA GPU and its driver.
// SPDX-License-Identifier: Apache-2.0
#include "compat/image_fit.h"
#include "facts/arch.h"

namespace opdock {
namespace {

bool same_arch(const CudaArch& arch, const Gpu& gpu) {
  return arch.major == gpu.major && arch.minor == gpu.minor;
}

// Returns whether the majors are equal and the image's minor is not above the GPU's. By this rule
// cubins run on later GPUs, and it defines a family: sm_100f runs on 10.0 and 10.3, sm_120f on 12.0
// and 12.1. 10.1 lies between them but is Tegra, another line.
bool same_generation(const CudaArch& arch, const Gpu& gpu) {
  return arch.major == gpu.major && arch.minor <= gpu.minor;
}

bool crosses_tegra(const CudaArch& arch, const Gpu& gpu) {
  return !same_arch(arch, gpu) && (gpu.tegra || is_tegra(arch.major, arch.minor));
}

std::optional<Code> cubin_arch_problem(const CudaArch& arch, const Gpu& gpu) {
  if (arch.suffix == 'a' && !same_arch(arch, gpu)) return Code::kArchSpecific;
  if (!same_generation(arch, gpu)) {
    return arch.suffix == 'f' ? Code::kArchSpecific : Code::kArchMismatch;
  }
  if (crosses_tegra(arch, gpu)) return Code::kTegraImage;
  return std::nullopt;
}

std::optional<Code> ptx_arch_problem(const CudaArch& arch, const Gpu& gpu) {
  if (arch.suffix == 'a' && !same_arch(arch, gpu)) return Code::kArchSpecific;
  if (arch.suffix == 'f' && (!same_generation(arch, gpu) || crosses_tegra(arch, gpu))) {
    return Code::kArchSpecific;
  }
  // PTX runs on every later GPU, Tegra or not.
  if (arch.major > gpu.major || (arch.major == gpu.major && arch.minor > gpu.minor)) {
    return Code::kArchMismatch;
  }
  return std::nullopt;
}

// A cubin needs a driver of its toolkit's major (before CUDA 11, of its toolkit's version); PTX
// needs one of its toolkit's version, since older drivers do not know its PTX ISA version.
std::optional<Code> toolkit_problem(ImageKind kind, const Version& toolkit,
                                    const std::optional<Version>& driver) {
  if (toolkit.empty() || !driver) return Code::kToolkitUnknown;
  const bool by_major = kind == ImageKind::kCubin && driver->major() >= 11;
  const bool fits = by_major ? toolkit.major() <= driver->major()
                             : Version{toolkit.major(), toolkit.minor()} <= *driver;
  if (!fits) return Code::kDriverTooOld;
  return std::nullopt;
}

// Ranks images in this order: exact architecture, family, lower minor, PTX. Among exact ones the
// more specific is first, because it may use more instructions.
std::array<int, 4> rank(const CudaArch& arch, const DeviceImage& image, const Gpu& gpu) {
  const int specific = arch.suffix == 'a' ? 2 : arch.suffix == 'f' ? 1 : 0;
  int group = 0;  // PTX
  if (image.kind == ImageKind::kCubin) {
    group = same_arch(arch, gpu) ? 3 : specific == 1 ? 2 : 1;
  }
  const int toolkit = static_cast<int>(image.toolkit.major() * 1000 + image.toolkit.minor());
  return {group, arch.major * 10 + arch.minor, specific, toolkit};
}

}  // namespace

ImageFit fit_cuda(const DeviceImage& image, const Gpu& gpu, const MachineFacts& machine) {
  if (image.arch.empty()) return {Code::kArchUnknown, {}};
  const std::optional<CudaArch> arch = parse_cuda_arch(image.arch);
  if (!arch || arch->is_virtual != (image.kind == ImageKind::kPtx)) {
    return {Code::kArchMismatch, {}};
  }
  std::optional<Code> problem =
      image.kind == ImageKind::kPtx ? ptx_arch_problem(*arch, gpu) : cubin_arch_problem(*arch, gpu);
  // The toolkit is checked only if the architecture fits: otherwise a newer driver would not help.
  if (!problem) problem = toolkit_problem(image.kind, image.toolkit, machine.cuda_driver);
  return {problem, rank(*arch, image, gpu)};
}

}  // namespace opdock
