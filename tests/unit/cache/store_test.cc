// Publishing, finding, locking and remembering, without faults.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cache_folder.h"

namespace opdock::testing {
namespace {

TEST(Store, PublishesAndFinds) {
  CacheFolder folder;
  const auto cache = folder.open();
  EXPECT_TRUE(cache->find(request(), nullptr, nullptr).empty());
  std::vector<Reason> reasons;
  const auto lock = cache->lock(request(), maker(), nullptr, &reasons);
  ASSERT_NE(lock, nullptr);
  const auto made = cache->publish_blobs(request(), maker(), blobs(), &reasons);
  ASSERT_NE(made, nullptr) << text(reasons);
  EXPECT_TRUE(reasons.empty()) << text(reasons);
  const auto found = cache->find(request(), nullptr, &reasons);
  ASSERT_EQ(found.size(), 1u) << text(reasons);
  expect_whole(*found[0]);
}

TEST(Store, PublishesAFolder) {
  CacheFolder folder;
  const auto cache = folder.open();
  std::vector<Reason> reasons;
  const auto made = publish_plugin(cache.get(), &reasons);
  ASSERT_NE(made, nullptr) << text(reasons);
  EXPECT_EQ(read(made->folder() + "/axpy.so"), kLibrary);
  EXPECT_EQ(read(made->folder() + "/log/build.log"), "done\n");
  const auto found = cache->find(plugin_request(), nullptr, &reasons);
  ASSERT_EQ(found.size(), 1u) << text(reasons);
  EXPECT_EQ(found[0]->folder(), made->folder());
  EXPECT_TRUE(folder.temp().empty());
}

}  // namespace
}  // namespace opdock::testing
