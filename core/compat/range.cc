// SPDX-License-Identifier: Apache-2.0
#include "compat/range.h"

#include <algorithm>
#include <array>
#include <utility>

namespace opdock {
namespace {

std::string_view without_spaces(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::optional<VersionRange::Bound> VersionRange::parse_bound(std::string_view text) {
  // Longer spellings first: ">=" also begins with ">".
  static constexpr std::array<std::pair<std::string_view, Relation>, 6> kRelations = {
      {{"==", Relation::kEqual},
       {"!=", Relation::kNotEqual},
       {">=", Relation::kAtLeast},
       {"<=", Relation::kAtMost},
       {">", Relation::kAbove},
       {"<", Relation::kBelow}}};
  text = without_spaces(text);
  for (const auto& [spelling, relation] : kRelations) {
    if (!text.starts_with(spelling)) continue;
    Bound bound{relation, {}, 0};
    std::string_view number = without_spaces(text.substr(spelling.size()));
    const bool wildcard = number.ends_with(".*");
    if (wildcard) {
      if (relation != Relation::kEqual && relation != Relation::kNotEqual) return std::nullopt;
      number.remove_suffix(2);
      bound.prefix = 1 + static_cast<int>(std::count(number.begin(), number.end(), '.'));
    }
    if (number.find('+') != number.npos) return std::nullopt;
    const std::optional<Version> version = Version::parse(number);
    if (!version) return std::nullopt;
    bound.version = *version;
    return bound;
  }
  return std::nullopt;
}

std::optional<VersionRange> VersionRange::parse(std::string_view text) {
  VersionRange range;
  if (without_spaces(text).empty()) return range;
  for (;;) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::optional<Bound> bound = parse_bound(text.substr(0, comma));
    if (!bound) return std::nullopt;
    range.bounds_.push_back(*bound);
    if (comma == text.size()) return range;
    text.remove_prefix(comma + 1);
  }
}

bool VersionRange::contains(const Version& version) const {
  return std::all_of(bounds_.begin(), bounds_.end(), [&](const Bound& bound) {
    bool equal = version == bound.version;
    if (bound.prefix > 0) {
      equal = true;
      for (int i = 0; i < bound.prefix; ++i) {
        equal = equal && version.part(i) == bound.version.part(i);
      }
    }
    switch (bound.relation) {
      case Relation::kEqual:
        return equal;
      case Relation::kNotEqual:
        return !equal;
      case Relation::kAtLeast:
        return version >= bound.version;
      case Relation::kAtMost:
        return version <= bound.version;
      case Relation::kAbove:
        return version > bound.version;
      case Relation::kBelow:
        return version < bound.version;
    }
    return false;
  });
}

}  // namespace opdock
