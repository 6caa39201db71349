// Tests opdock.hpp: the ownership of result tensors, and the caller's own tensors for results.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "opdock/opdock.hpp"
#include "support.h"

namespace opdock {
namespace {

using testing_support::TestFunction;

const opdock_op* same_op() {
  static const opdock_op op =
      testing_support::make_op("same(Tensor(a!) x) -> Tensor(a!)", OPDOCK_OP_THREAD_SAFE);
  return &op;
}

// The temporary tensor that such a result would point to is gone after the call.
TEST(OpdockHpp, AResultThatIsAnArgumentIsNone) {
  TestFunction f(same_op());
  const Function function(&f.function);
  std::vector<float> x(4);
  const ResultList results = function(TensorView(x.data(), {4}));
  EXPECT_EQ(results.size(), 1u);
  EXPECT_TRUE(results.is_none(0));
}

TEST(OpdockHpp, FreshResultsAreTheLists) {
  TestFunction f(testing_support::double_op());
  const Function function(&f.function);
  std::vector<float> x(4, 3);
  const ResultList results = function(TensorView(x.data(), {4}));
  EXPECT_EQ(results[0].data<float>()[3], 6.0f);
}

TEST(OpdockHpp, WritesIntoOutputs) {
  TestFunction f(testing_support::double_op());
  const Function function(&f.function);
  std::vector<float> x(4, 3), y(4);
  const ResultList results =
      function.into({TensorView(y.data(), {4})}, nullptr, TensorView(x.data(), {4}));
  EXPECT_TRUE(results.is_none(0));
  EXPECT_EQ(y[3], 6.0f);
}

// Returns what `call` throws, as "status: text".
template <class Call>
std::string thrown_by(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::to_string(error.status()) + ": " + error.what();
  }
  return "nothing";
}

TEST(OpdockHpp, DoesNotWriteThroughPointersToConst) {
  TestFunction f(testing_support::double_op());
  const Function function(&f.function);
  const std::vector<float> x(4, 3), y(4);
  const std::string text = thrown_by(
      [&] { function.into({TensorView(y.data(), {4})}, nullptr, TensorView(x.data(), {4})); });
  EXPECT_NE(text.find("1: double: result 0: found a tensor that is read-only"), text.npos) << text;
  EXPECT_EQ(y[3], 0.0f);
}

TEST(OpdockHpp, RefusesMoreOutputsThanThereAreFreshResults) {
  TestFunction f(testing_support::double_op());
  const Function function(&f.function);
  std::vector<float> x(4, 3), y(4);
  const TensorView out(y.data(), {4});
  EXPECT_EQ(thrown_by([&] { function.into({out, out}, nullptr, TensorView(x.data(), {4})); }),
            "1: double: found 2 outputs, wanted at most 1, one for each result with fresh tensors; "
            "pass fewer");
  TestFunction g(same_op());
  EXPECT_EQ(thrown_by([&] { Function(&g.function).into({out}, nullptr, out); }),
            "1: same: found 1 output, wanted at most 0, one for each result with fresh tensors; "
            "pass fewer");
}

}  // namespace
}  // namespace opdock
