// Dotted version numbers, compared number by number: 3.4.9 < 3.4.30.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace opdock {

class Version {
 public:
  Version() = default;
  Version(std::initializer_list<uint32_t> parts) : parts_(parts) {}

  // Parses digits and dots, at most 8 numbers; "2.13.0+cpu" is read up to the '+'. Returns nullopt
  // for anything else.
  static std::optional<Version> parse(std::string_view text);

  uint32_t major() const { return part(0); }
  uint32_t minor() const { return part(1); }
  uint32_t part(size_t i) const { return i < parts_.size() ? parts_[i] : 0; }
  bool empty() const { return parts_.empty(); }
  std::string text() const;

  // Missing numbers count as 0, so 12 == 12.0.
  friend std::strong_ordering operator<=>(const Version& a, const Version& b);
  friend bool operator==(const Version& a, const Version& b) { return (a <=> b) == 0; }

 private:
  std::vector<uint32_t> parts_;
};

}  // namespace opdock
