// SPDX-License-Identifier: Apache-2.0
#include "arch/host_limits.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace opdock {
namespace {

// Returns the newest major that a preprocessor condition accepts if it refuses newer values of
// `macro`: 15 for "__GNUC__ > 15", 20 for "(__clang_major__ >= 21) || …". 0 if it has no such part.
uint32_t newest_accepted(std::string_view condition, std::string_view macro) {
  for (size_t at = condition.find(macro); at != condition.npos;
       at = condition.find(macro, at + 1)) {
    std::string_view rest = condition.substr(at + macro.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    if (!rest.starts_with('>')) continue;
    const bool inclusive = rest.starts_with(">=");
    rest.remove_prefix(inclusive ? 2 : 1);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    uint32_t number = 0;
    if (std::from_chars(rest.data(), rest.data() + rest.size(), number).ec != std::errc()) continue;
    if (number > 0) return number - (inclusive ? 1 : 0);
  }
  return 0;
}

}  // namespace

std::optional<HostLimits> read_host_limits(std::string_view host_config, std::string path) {
  HostLimits limits;
  limits.source = std::move(path);
  // Each check is an #if and, in the next line that is not blank, an #error that names the
  // compiler.
  std::string_view condition;
  while (!host_config.empty()) {
    const size_t end = std::min(host_config.find('\n'), host_config.size());
    const std::string_view line = host_config.substr(0, end);
    host_config.remove_prefix(std::min(end + 1, host_config.size()));
    if (line.starts_with("#if")) condition = line;
    if (!line.starts_with("#error")) continue;
    if (line.find("unsupported GNU version") != line.npos && limits.gcc == 0)
      limits.gcc = newest_accepted(condition, "__GNUC__");
    // Other kinds of clang (HOS, Grace) have checks of their own.
    if (line.find("unsupported clang version") != line.npos && limits.clang == 0)
      limits.clang = newest_accepted(condition, "__clang_major__");
  }
  if (limits.gcc == 0 && limits.clang == 0) return std::nullopt;
  return limits;
}

std::optional<HostLimits> documented_host_limits(const Version& toolkit) {
  struct Row {
    uint32_t major, minor, gcc, clang;
  };
  static constexpr std::array<Row, 19> kRows = {{
      {11, 0, 9, 9},   {11, 1, 10, 10}, {11, 2, 10, 11}, {11, 3, 10, 11}, {11, 4, 11, 12},
      {11, 5, 11, 12}, {11, 6, 11, 13}, {11, 7, 11, 13}, {11, 8, 11, 14}, {12, 0, 12, 14},
      {12, 1, 12, 15}, {12, 2, 12, 15}, {12, 3, 12, 16}, {12, 4, 13, 17}, {12, 5, 13, 17},
      {12, 6, 13, 18}, {12, 8, 14, 19}, {12, 9, 14, 19}, {13, 0, 15, 20},
  }};
  HostLimits limits;
  limits.source = "NVIDIA's installation guide of CUDA " + toolkit.text();
  for (const Row& row : kRows) {
    if (row.major != toolkit.major() || row.minor != toolkit.minor()) continue;
    limits.gcc = row.gcc;
    limits.clang = row.clang;
    return limits;
  }
  return std::nullopt;
}

}  // namespace opdock
