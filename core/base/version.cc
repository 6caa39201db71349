// SPDX-License-Identifier: Apache-2.0
#include "base/version.h"

#include <algorithm>
#include <charconv>

namespace opdock {

std::optional<Version> Version::parse(std::string_view text) {
  text = text.substr(0, text.find('+'));
  Version version;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    uint32_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || version.parts_.size() == 8) return std::nullopt;
    version.parts_.push_back(number);
    if (next == end) return version;
    if (*next != '.') return std::nullopt;
    at = next + 1;
  }
}

std::string Version::text() const {
  std::string text;
  for (uint32_t part : parts_) {
    if (!text.empty()) text += '.';
    text += std::to_string(part);
  }
  return text;
}

std::strong_ordering operator<=>(const Version& a, const Version& b) {
  const size_t size = std::max(a.parts_.size(), b.parts_.size());
  for (size_t i = 0; i < size; ++i) {
    if (auto order = a.part(i) <=> b.part(i); order != 0) return order;
  }
  return std::strong_ordering::equal;
}

}  // namespace opdock
