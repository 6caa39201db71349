// SPDX-License-Identifier: Apache-2.0
#include "facts/arch.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace opdock {

std::optional<CudaArch> parse_cuda_arch(std::string_view text) {
  CudaArch arch;
  if (text.starts_with("compute_")) {
    arch.is_virtual = true;
    text.remove_prefix(8);
  } else if (text.starts_with("sm_")) {
    text.remove_prefix(3);
  } else {
    return std::nullopt;
  }
  if (text.ends_with('a') || text.ends_with('f')) {
    arch.suffix = text.back();
    text.remove_suffix(1);
  }
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (number < 10 || number > 9999) return std::nullopt;
  arch.major = number / 10;
  arch.minor = number % 10;
  return arch;
}

std::optional<CudaArch> parse_cuda_gpu(std::string_view text) {
  const size_t point = text.find('.');
  if (point == text.npos) {
    const std::optional<CudaArch> arch = parse_cuda_arch(text);
    return arch && !arch->is_virtual ? arch : std::nullopt;
  }
  // One digit follows the point, and perhaps a suffix.
  const std::string_view minor = text.substr(point + 1);
  const bool has_suffix = minor.ends_with('a') || minor.ends_with('f');
  if (minor.size() != (has_suffix ? 2u : 1u) || point == 0 || point > 2) return std::nullopt;
  return parse_cuda_arch("sm_" + std::string(text.substr(0, point)) + std::string(minor));
}

std::string to_text(const CudaArch& arch) {
  std::string text = arch.is_virtual ? "compute_" : "sm_";
  text += std::to_string(arch.major) + std::to_string(arch.minor);
  if (arch.suffix != '\0') text += arch.suffix;
  return text;
}

bool is_tegra(int major, int minor) {
  static constexpr std::array<std::pair<int, int>, 6> kTegra = {
      {{5, 3}, {6, 2}, {7, 2}, {8, 7}, {10, 1}, {11, 0}}};
  return std::find(kTegra.begin(), kTegra.end(), std::pair(major, minor)) != kTegra.end();
}

std::optional<GfxArch> parse_gfx_arch(std::string_view text) {
  GfxArch arch;
  const size_t colon = std::min(text.find(':'), text.size());
  arch.processor = text.substr(0, colon);
  if (!arch.processor.starts_with("gfx") || arch.processor.size() < 6) return std::nullopt;
  text.remove_prefix(colon);
  while (!text.empty()) {
    text.remove_prefix(1);  // the colon
    const size_t end = std::min(text.find(':'), text.size());
    std::string_view feature = text.substr(0, end);
    text.remove_prefix(end);
    if (!feature.ends_with('+') && !feature.ends_with('-')) return std::nullopt;
    const bool on = feature.ends_with('+');
    feature.remove_suffix(1);
    if (feature == "sramecc") {
      arch.sramecc = on;
    } else if (feature == "xnack") {
      arch.xnack = on;
    } else {
      return std::nullopt;
    }
  }
  return arch;
}

std::optional<GfxVersion> gfx_version(std::string_view processor) {
  if (!processor.starts_with("gfx") || processor.size() < 6) return std::nullopt;
  processor.remove_prefix(3);
  GfxVersion version;
  const char* const end = processor.data() + processor.size();
  const auto major = std::from_chars(processor.data(), end - 2, version.major);
  uint32_t rest = 0;
  const auto minor = std::from_chars(end - 2, end, rest, 16);
  if (major.ec != std::errc() || major.ptr != end - 2 || minor.ec != std::errc() ||
      minor.ptr != end) {
    return std::nullopt;
  }
  version.minor = rest / 16;
  return version;
}

}  // namespace opdock
