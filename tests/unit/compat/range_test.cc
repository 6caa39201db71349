// SPDX-License-Identifier: Apache-2.0
#include "compat/range.h"

#include <gtest/gtest.h>

namespace opdock {
namespace {

bool fits(const char* range, const char* version) {
  const std::optional<VersionRange> parsed = VersionRange::parse(range);
  return parsed && parsed->contains(*Version::parse(version));
}

TEST(Range, EmptyTakesAnything) {
  EXPECT_TRUE(fits("", "0"));
  EXPECT_TRUE(fits("  ", "99.1"));
}

TEST(Range, EveryComparisonMustHold) {
  EXPECT_TRUE(fits(" >= 2.11 , < 3 ", "2.11"));
  EXPECT_FALSE(fits(">=2.11,<3", "3"));
  EXPECT_FALSE(fits(">=2.11,<3", "2.10.9"));
}

TEST(Range, NumbersAreComparedAsNumbers) {
  EXPECT_TRUE(fits(">2.9", "2.10"));
  EXPECT_TRUE(fits("==2", "2.0.0"));
  EXPECT_FALSE(fits("!=2", "2.0"));
}

TEST(Range, WildcardsCompareTheNumbersGiven) {
  EXPECT_TRUE(fits("==2.11.*", "2.11"));
  EXPECT_TRUE(fits("==2.11.*", "2.11.7"));
  EXPECT_FALSE(fits("==2.11.*", "2.12"));
  EXPECT_FALSE(fits("!=2.11.*", "2.11.7"));
}

TEST(Range, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"2.11", "=2", "~=2.11", ">=", ">=2.11,", ",", ">=2..1", ">=2.x",
                           ">=2.11.*", ">=2.11+cpu", "==*", "=>2", ">=-1"}) {
    EXPECT_FALSE(VersionRange::parse(text)) << text;
  }
}

}  // namespace
}  // namespace opdock
