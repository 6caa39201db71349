// Expands plugin.toml's kernel names, where a template argument may be a list, {float,
// opdock::half}.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/toml_table.h"

namespace opdock {

// The maximum number of a plugin's kernel names, after expansion.
inline constexpr size_t kMaxKernels = 1024;

struct KernelNameMistake {
  size_t offset = 0;  // in the text
  std::string found, wanted;
};

// Returns the names that `text` stands for: the text itself or, if template arguments are lists,
// one name for each combination, in the order of nested loops (the last list's elements change
// fastest). Returns at most `most` names; nullopt and *mistake if there are more or the text is
// wrong.
std::optional<std::vector<std::string>> expand_kernel_name(std::string_view text, size_t most,
                                                           KernelNameMistake* mistake);

// Reads [device]'s list "kernels" and expands each name in its place. Reports a name that occurs
// twice. file: plugin.toml's bytes.
std::vector<std::string> read_kernel_names(TomlTable* device, const std::string& file);

}  // namespace opdock
