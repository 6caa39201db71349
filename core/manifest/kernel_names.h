// Kernel names as plugin.toml has them: a template argument may be a list, {float, opdock::half}.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/toml_table.h"

namespace opdock {

// The names of a plugin's kernels, after expansion.
inline constexpr size_t kMostKernels = 1024;

struct KernelNameMistake {
  size_t offset = 0;  // in the text
  std::string found, wanted;
};

// The names that `text` stands for: the text itself, or, where template arguments are lists, one
// name for each combination, in the order of nested loops: the last list's elements alternate
// fastest. At most `most` names; nullopt and *mistake otherwise.
std::optional<std::vector<std::string>> expand_kernel_name(std::string_view text, size_t most,
                                                           KernelNameMistake* mistake);

// [device]'s list "kernels", each name expanded in its place. Reports a name that is there twice.
// file: plugin.toml's bytes.
std::vector<std::string> read_kernel_names(TomlTable* device, const std::string& file);

}  // namespace opdock
