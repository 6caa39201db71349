// Version ranges that a plugin declares for the libraries it needs: ">=2.11,<3".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/version.h"

namespace opdock {

class VersionRange {
 public:
  // Parses comma-separated comparisons, all of which must hold: == != >= <= > < and a version;
  // blanks are ignored. "==2.11.*" and "!=2.11.*" compare only the stated numbers. An empty text
  // allows any version. Returns nullopt for anything else.
  static std::optional<VersionRange> parse(std::string_view text);

  bool contains(const Version& version) const;

 private:
  enum class Relation { kEqual, kNotEqual, kAtLeast, kAtMost, kAbove, kBelow };
  struct Bound {
    Relation relation;
    Version version;
    int prefix = 0;  // compare only this many numbers; 0: all
  };
  static std::optional<Bound> parse_bound(std::string_view text);

  std::vector<Bound> bounds_;
};

}  // namespace opdock
