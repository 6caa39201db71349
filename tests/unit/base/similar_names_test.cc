// Tests suggestions for misspelt op names.
// SPDX-License-Identifier: Apache-2.0
#include "base/similar_names.h"

#include <gtest/gtest.h>

namespace opdock {
namespace {

using Names = std::vector<std::string>;

const Names kKnown = {"add_layer_norm", "layer_norm", "log_softmax", "noop", "softmax"};

TEST(SimilarNames, AreThoseWithFewLettersChanged) {
  EXPECT_EQ(similar_names("sofmax", kKnown), Names{"softmax"});
  EXPECT_EQ(similar_names("sfotmax", kKnown), Names{"softmax"});
  EXPECT_EQ(similar_names("SoftMax", kKnown), Names{"softmax"});
  EXPECT_EQ(similar_names("layernorm", kKnown), Names{"layer_norm"});
  EXPECT_EQ(similar_names("nop", kKnown), Names{"noop"});
  EXPECT_EQ(similar_names("softmax/sofmax", kKnown), Names{"softmax"});
}

TEST(SimilarNames, AreThoseThatBeginLikeIt) {
  EXPECT_EQ(similar_names("layer", kKnown), Names{"layer_norm"});
  EXPECT_EQ(similar_names("l", kKnown), (Names{"layer_norm", "log_softmax"}));
}

TEST(SimilarNames, TheNearestFirstAndThreeAtMost) {
  EXPECT_EQ(similar_names("abcd", {"abxd", "abcd1", "abcde", "abcd", "zzzz"}),
            (Names{"abcd", "abcd1", "abcde"}));
}

TEST(SimilarNames, NoneForWhatIsUnlike) {
  EXPECT_EQ(similar_names("convolution", kKnown), Names());
  EXPECT_EQ(similar_names("", kKnown), Names());
  EXPECT_EQ(similar_names("/", kKnown), Names());
  EXPECT_EQ(similar_names(std::string(100000, 's'), kKnown), Names());
  EXPECT_EQ(similar_names("softmax", {}), Names());
}

}  // namespace
}  // namespace opdock
