// Judges code objects against an AMD GPU.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "compat/image_fit.h"
#include "facts/arch.h"

namespace opdock {
namespace {

// LLVM lists each generic processor's members one by one, as they are added only when their ISA is
// known to contain it: gfx908 and gfx90a are not in gfx9-generic. So this is a list as well; a
// member that is missing here is rejected rather than guessed.
struct GenericProcessor {
  std::string_view name;
  std::vector<std::string_view> members;
};

const std::vector<GenericProcessor>& generic_processors() {
  const NoFork no_fork;
  static const std::vector<GenericProcessor> processors = {
      {"gfx9-generic", {"gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"}},
      {"gfx9-4-generic", {"gfx940", "gfx941", "gfx942", "gfx950"}},
      {"gfx10-1-generic", {"gfx1010", "gfx1011", "gfx1012", "gfx1013"}},
      {"gfx10-3-generic",
       {"gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"}},
      {"gfx11-generic",
       {"gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"}},
      {"gfx12-generic", {"gfx1200", "gfx1201"}},
  };
  return processors;
}

bool processor_fits(const GfxArch& image, const GfxArch& gpu) {
  if (image.processor == gpu.processor) return true;
  for (const GenericProcessor& generic : generic_processors()) {
    if (generic.name != image.processor) continue;
    return std::find(generic.members.begin(), generic.members.end(), gpu.processor) !=
           generic.members.end();
  }
  return false;
}

// A flag that the image does not state fits either setting; one that it states must be the GPU's.
bool feature_fits(const std::optional<bool>& image, const std::optional<bool>& gpu) {
  return !image || image == gpu;
}

}  // namespace

ImageFit fit_rocm(const DeviceImage& image, const Gpu& gpu) {
  if (image.arch.empty()) return {Code::kArchUnknown, {}};
  const std::optional<GfxArch> built_for = parse_gfx_arch(image.arch);
  const std::optional<GfxArch> here = parse_gfx_arch(gpu.arch);
  if (!built_for || !here || !processor_fits(*built_for, *here)) return {Code::kArchMismatch, {}};
  const int exact = built_for->is_generic() ? 0 : 1;
  const int features = built_for->sramecc.has_value() + built_for->xnack.has_value();
  const int toolkit = static_cast<int>(image.toolkit.major() * 1000 + image.toolkit.minor());
  const std::array<int, 4> rank = {exact, features, toolkit, 0};
  if (!feature_fits(built_for->sramecc, here->sramecc) ||
      !feature_fits(built_for->xnack, here->xnack)) {
    return {Code::kFeatureFlags, rank};
  }
  return {std::nullopt, rank};
}

}  // namespace opdock
