// Tests that the quick check of arguments accepts at most what the full check accepts.
// SPDX-License-Identifier: Apache-2.0
#include "call/accept.h"

#include <gtest/gtest.h>

#include <random>

#include "support.h"

namespace opdock {
namespace {

using namespace testing_support;
using A = Arguments;

// Values at which a check may be off by one or overflow.
constexpr int64_t kSizes[] = {
    0,         1,  2,        3, 8, (1 << 27) - 1, 1 << 27, int64_t{1} << 31, int64_t{1} << 62,
    INT64_MAX, -1, INT64_MIN};

TEST(Accept, TakesNothingThatIsRefused) {
  static const opdock_op op = make_op("quick(Tensor x, Tensor y, Tensor? z, bool b, int i) -> ()");
  TestFunction f(&op);
  f.resolver.dtypes = {kF32, kF64};
  A a;
  opdock_value plain = A::value(a.tensor({2, 3}));
  ASSERT_EQ(f.invoke({plain, plain, A::none(), A::boolean(true), A::integer(1)}), OPDOCK_OK)
      << f.error;  // the target is known from here on
  std::mt19937 random(1);
  const auto pick = [&random](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  const auto size = [&] { return kSizes[pick(4) != 0 ? pick(5) : pick(12)]; };
  double memory = 0;
  int taken = 0, refused = 0;
  for (int round = 0; round < 200000; ++round) {
    int64_t shape[17], strides[17];
    opdock_tensor x{&memory, kCpu, pick(6), kF32, shape, strides, 0};
    if (pick(8) == 0) x.ndim = pick(19) - 1;
    for (int i = 0; i < 17; ++i) {
      shape[i] = size();
      strides[i] = size();
    }
    if (pick(16) == 0) x.shape = nullptr;
    if (pick(16) == 0) x.strides = nullptr;
    if (pick(16) == 0) x.data = nullptr;
    if (pick(8) == 0) x.dtype = {static_cast<uint8_t>(pick(3)), static_cast<uint8_t>(pick(129)), 1};
    if (pick(16) == 0) x.dtype.lanes = static_cast<uint16_t>(pick(3));
    if (pick(16) == 0) x.device = {pick(12), pick(3) - 1};
    opdock_value args[] = {plain, plain, A::none(), A::boolean(true), A::integer(1)};
    opdock_value& odd = args[pick(3)];
    odd = A::value(&x, pick(16) == 0 ? OPDOCK_VALUE_NO_DATA : 0);
    if (pick(16) == 0) odd.as.tensor = nullptr;
    if (pick(16) == 0) args[3].as.i64 = pick(4) - 1;
    if (pick(16) == 0) args[pick(5)].tag = static_cast<uint32_t>(pick(3) == 0 ? 40 : pick(3));
    if (pick(32) == 0) args[pick(5)] = A::none();
    const uint32_t count = pick(64) == 0 ? 4 : 5;
    opdock_status status = OPDOCK_OK;
    Target* quick = accept_arguments(f.function, args, count);
    Target* full =
        check_arguments(f.function, args, count, false, &status, {f.error, sizeof f.error});
    if (quick != nullptr) {
      ASSERT_EQ(full, quick) << "round " << round << ": " << f.error;
    }
    ++(quick != nullptr ? taken : refused);
  }
  EXPECT_GT(taken, 5000);  // not all random values are invalid
  EXPECT_GT(refused, 5000);
}

// If usual arguments were not accepted, calls would be right but slow.
TEST(Accept, TakesWhatIsUsual) {
  static const opdock_op op =
      make_op("usual(Tensor x, Tensor? y, *, float? s, bool b=False) -> ()");
  TestFunction f(&op);
  A a;
  opdock_value matrix = A::value(a.tensor({2, 3}));
  opdock_value expanded = A::value(a.tensor({2, 3}, kF32, {0, 1}));
  opdock_value read_only = A::value(a.tensor({4}, kF32), OPDOCK_VALUE_READ_ONLY);
  ASSERT_EQ(f.invoke({matrix, A::none(), A::none(), A::boolean(false)}), OPDOCK_OK) << f.error;
  const auto takes = [&](std::vector<opdock_value> args) {
    return accept_arguments(f.function, args.data(), static_cast<uint32_t>(args.size())) != nullptr;
  };
  EXPECT_TRUE(takes({matrix, A::none(), A::none(), A::boolean(false)}));
  EXPECT_TRUE(takes({matrix, expanded, A::real(0.5), A::boolean(true)}));
  EXPECT_TRUE(takes({read_only, matrix, A::real(0.5), A::boolean(true)}));
  EXPECT_FALSE(takes({A::none(), matrix, A::real(0.5), A::boolean(true)}));
}

}  // namespace
}  // namespace opdock
