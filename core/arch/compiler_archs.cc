// SPDX-License-Identifier: Apache-2.0
#include "arch/compiler_archs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "facts/arch.h"

namespace opdock {

bool CompilerArchs::knows(const CudaTarget& target) const {
  return std::any_of(targets.begin(), targets.end(), [&](const CudaTarget& known) {
    return known.number == target.number && known.suffix == target.suffix;
  });
}

CompilerArchs archs_of_nvcc(const Version& version, std::string_view help) {
  CompilerArchs out;
  out.name = "nvcc " + version.text();
  constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyz_0123456789";
  std::vector<CudaTarget> named;  // sm_…, in the order of the text
  size_t quoted = 0;
  for (size_t at = help.find("sm_"); at != help.npos; at = help.find("sm_", at + 3)) {
    const size_t end = std::min(help.find_first_not_of(kNameCharacters, at), help.size());
    const std::optional<CudaArch> arch = parse_cuda_arch(help.substr(at, end - at));
    if (!arch) continue;
    // In --help only quoted names are values; other names are in explanations.
    const bool is_value = at > 0 && help[at - 1] == '\'';
    quoted += is_value;
    CudaTarget target;
    target.number = 10 * arch->major + arch->minor;
    target.suffix = arch->suffix;
    target.ptx = is_value;
    named.push_back(target);
  }
  for (CudaTarget target : named) {
    if (quoted > 0 && !target.ptx) continue;
    target.ptx = false;
    merge(target, &out.targets);
  }
  return out;
}

CompilerArchs archs_of_nvrtc(const Version& version, const std::vector<int>& numbers) {
  CompilerArchs out;
  out.name = fmt::format("NVRTC {}.{}", version.major(), version.minor());
  for (const int number : numbers) {
    CudaTarget target;
    target.number = number;
    merge(target, &out.targets);
    if (number >= 90 && version >= Version{12, 0}) {
      target.suffix = 'a';
      merge(target, &out.targets);
    }
    if (number >= 100 && version >= Version{12, 9}) {
      target.suffix = 'f';
      merge(target, &out.targets);
    }
  }
  return out;
}

bool any_knows(const std::vector<CompilerArchs>& compilers, const CudaTarget& target) {
  return std::any_of(compilers.begin(), compilers.end(),
                     [&](const CompilerArchs& compiler) { return compiler.knows(target); });
}

std::vector<int> numbers_of(const std::vector<CompilerArchs>& compilers) {
  std::set<int> numbers;
  for (const CompilerArchs& compiler : compilers)
    for (const CudaTarget& target : compiler.targets)
      if (target.suffix == '\0') numbers.insert(target.number);
  return {numbers.begin(), numbers.end()};
}

std::string knowledge_of(const std::vector<CompilerArchs>& compilers) {
  std::string out;
  for (const CompilerArchs& compiler : compilers) {
    out += fmt::format("{}{} knows ", out.empty() ? "" : "; ", compiler.name);
    std::string list;
    for (const int number : numbers_of({compiler}))
      list += fmt::format("{}{}.{}", list.empty() ? "" : ", ", number / 10, number % 10);
    out += list.empty() ? "none" : list;
  }
  return out;
}

}  // namespace opdock
