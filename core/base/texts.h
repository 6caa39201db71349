// Joins several texts into one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace opdock {

// "a, b, c"
std::string join(const std::vector<std::string>& texts, std::string_view between = ", ");
// "a, b or c"
std::string join_or(const std::vector<std::string>& texts);
// "a, b and 3 more". most: how many texts are written out, at least one.
std::string join_some(const std::vector<std::string>& texts, size_t most);

}  // namespace opdock
