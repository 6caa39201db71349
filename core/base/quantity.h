// Writes how many there are of something, for messages.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace opdock {

// Returns "1 entry" or "2 entries". noun: its singular, whose plural ends in "s" or, after "y", in
// "ies".
template <std::integral Count>
std::string quantity(Count count, std::string_view noun) {
  std::string text = std::to_string(count) + " ";
  if (count == 1) return text.append(noun);
  if (!noun.ends_with('y')) return text.append(noun).append("s");
  return text.append(noun.substr(0, noun.size() - 1)).append("ies");
}

}  // namespace opdock
