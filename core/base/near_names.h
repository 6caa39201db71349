// Names that may have been meant.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace opdock {

// Those of `known` that are at most a third of their letters (one at least) away from `name` in
// insertions, deletions, replacements and swaps of neighbours, or begin with it, or with which it
// begins or ends ("torch" for "libtorch"); the nearest first, three at most. Case does not count.
// Of "plugin/op" the op is compared.
std::vector<std::string> near_names(const std::string& name, const std::vector<std::string>& known);

}  // namespace opdock
