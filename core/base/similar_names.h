// Suggestions for a misspelt name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace opdock {

// Returns at most three of the `known` names that are similar to `name`, the nearest first. A known
// name is similar if
//   - insertions, deletions, replacements and swaps of neighbouring letters turn one name into the
//     other, in at most a third as many steps as the longer one has letters (at least one step), or
//   - it starts with `name`, or
//   - `name` starts or ends with it ("torch" for "libtorch").
// Case does not count. If `name` is "plugin/op", only the op is compared.
std::vector<std::string> similar_names(const std::string& name,
                                       const std::vector<std::string>& known);

}  // namespace opdock
