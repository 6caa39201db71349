// SPDX-License-Identifier: Apache-2.0
#include "pack/archs.h"

#include <fmt/format.h>

namespace opdock::pack {

std::string CudaArch::sm() const {
  std::string text = fmt::format("sm_{}", number);
  if (suffix) text += suffix;
  return text;
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

static std::optional<CudaArch> parse_one(std::string_view text) {
  CudaArch arch;
  if (text.ends_with("+PTX")) {
    arch.ptx = true;
    text.remove_suffix(4);
  }
  if (text.ends_with('a') || text.ends_with('f')) {
    arch.suffix = text.back();
    text.remove_suffix(1);
  }
  // One or two digits, a point, one digit: 5.0 … 12.1.
  size_t point = text.find('.');
  if (point == std::string_view::npos || point < 1 || point > 2 || text.size() != point + 2)
    return std::nullopt;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == point) continue;
    if (!is_digit(text[i])) return std::nullopt;
    arch.number = arch.number * 10 + (text[i] - '0');
  }
  if (arch.number < 50) return std::nullopt;
  return arch;
}

std::optional<std::vector<CudaArch>> parse_cuda_archs(std::string_view text, std::string* problem) {
  constexpr std::string_view kSeparators = ";, \t";
  std::vector<CudaArch> archs;
  for (size_t begin = text.find_first_not_of(kSeparators); begin != std::string_view::npos;) {
    size_t end = std::min(text.find_first_of(kSeparators, begin), text.size());
    std::string_view word = text.substr(begin, end - begin);
    std::optional<CudaArch> arch = parse_one(word);
    if (!arch) {
      *problem = fmt::format(
          "CUDA architectures: found \"{}\", wanted numbers from 5.0 on such as 8.0, 9.0a, 10.0f "
          "or 12.0+PTX, separated by ';' or spaces",
          word);
      return std::nullopt;
    }
    bool merged = false;
    for (CudaArch& earlier : archs) {
      if (earlier.number != arch->number || earlier.suffix != arch->suffix) continue;
      earlier.ptx |= arch->ptx;
      merged = true;
    }
    if (!merged) archs.push_back(*arch);
    begin = text.find_first_not_of(kSeparators, end);
  }
  if (archs.empty()) {
    *problem = "CUDA architectures: found none, wanted at least one such as 8.0";
    return std::nullopt;
  }
  return archs;
}

}  // namespace opdock::pack
