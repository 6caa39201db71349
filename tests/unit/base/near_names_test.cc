// Tests suggestions for misspelt op names.
// SPDX-License-Identifier: Apache-2.0
#include "base/near_names.h"

#include <gtest/gtest.h>

namespace opdock {
namespace {

using Names = std::vector<std::string>;

const Names kKnown = {"add_layer_norm", "layer_norm", "log_softmax", "noop", "softmax"};

TEST(NearNames, AreThoseWithFewLettersChanged) {
  EXPECT_EQ(near_names("sofmax", kKnown), Names{"softmax"});
  EXPECT_EQ(near_names("sfotmax", kKnown), Names{"softmax"});
  EXPECT_EQ(near_names("SoftMax", kKnown), Names{"softmax"});
  EXPECT_EQ(near_names("layernorm", kKnown), Names{"layer_norm"});
  EXPECT_EQ(near_names("nop", kKnown), Names{"noop"});
  EXPECT_EQ(near_names("softmax/sofmax", kKnown), Names{"softmax"});
}

TEST(NearNames, AreThoseThatBeginLikeIt) {
  EXPECT_EQ(near_names("layer", kKnown), Names{"layer_norm"});
  EXPECT_EQ(near_names("l", kKnown), (Names{"layer_norm", "log_softmax"}));
}

TEST(NearNames, TheNearestFirstAndThreeAtMost) {
  EXPECT_EQ(near_names("abcd", {"abxd", "abcd1", "abcde", "abcd", "zzzz"}),
            (Names{"abcd", "abcd1", "abcde"}));
}

TEST(NearNames, NoneForWhatIsUnlike) {
  EXPECT_EQ(near_names("convolution", kKnown), Names());
  EXPECT_EQ(near_names("", kKnown), Names());
  EXPECT_EQ(near_names("/", kKnown), Names());
  EXPECT_EQ(near_names(std::string(100000, 's'), kKnown), Names());
  EXPECT_EQ(near_names("softmax", {}), Names());
}

}  // namespace
}  // namespace opdock
