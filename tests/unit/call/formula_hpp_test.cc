// Tests formula.hpp: a formula as a function, its gradient, its text, its source, and its errors.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "opdock/formula.hpp"

namespace opdock {
namespace {

TEST(FormulaHpp, ComputesAFormulaAndItsGradient) {
  const Runtime runtime("");
  const Formula swish(runtime, "x * sigmoid(a * x)", "swish(Tensor x, float a=1.0) -> Tensor");
  const std::vector<double> x = {-1.5, 0, 0.25, 3}, grad = {1, 2, 3, 4};
  const TensorView tx(x.data(), {4}), tgrad(grad.data(), {4});
  const ResultList y = swish(tx, named("a", 0.5));
  const ResultList slope = swish.gradient("x")(tgrad, tx, named("a", 0.5));
  ASSERT_EQ(y.size(), 1u);
  ASSERT_EQ(slope.size(), 1u);
  for (size_t i = 0; i < x.size(); ++i) {
    const double s = 1 / (1 + std::exp(-0.5 * x[i]));
    EXPECT_NEAR(y[0].data<double>()[i], x[i] * s, 1e-12);
    EXPECT_NEAR(slope[0].data<double>()[i], grad[i] * (s + 0.5 * x[i] * s * (1 - s)), 1e-12);
  }
  EXPECT_EQ(swish.schema(), "swish(Tensor x, float a=1.0) -> Tensor");
}

TEST(FormulaHpp, TakesTensorsWithoutASchemaAndWritesIntoOutputs) {
  const Runtime runtime("");
  const Formula product(runtime, "gate * up");
  std::vector<float> gate = {1, 2, 3}, up = {4, 5, 6}, out(3);
  product.into({TensorView(out.data(), {3})}, nullptr, TensorView(gate.data(), {3}),
               TensorView(up.data(), {3}));
  EXPECT_EQ(out, (std::vector<float>{4, 10, 18}));
}

TEST(FormulaHpp, HasATextAndASource) {
  const Runtime runtime("");
  const Formula centre(runtime, "x-mean( x )");
  EXPECT_EQ(centre.text(), "x - mean(x)");
  EXPECT_NE(centre.source("float16").find("OPDOCK_KERNEL"), std::string::npos);
}

TEST(FormulaHpp, ThrowsWhatIsWrongAndWhere) {
  const Runtime runtime("");
  const auto text_of = [](const auto& body) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), OPDOCK_INVALID_ARGUMENT);
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_NE(text_of([&] { Formula(runtime, "x * sigmoid(x"); }).find("line 1, column 14"),
            std::string::npos);
  const Formula good(runtime, "x * x");
  EXPECT_NE(text_of([&] { good.gradient("y"); }).find("\"y\""), std::string::npos)
      << text_of([&] { good.gradient("y"); });
  EXPECT_NE(text_of([&] { good.source("float7"); }).find("float7"), std::string::npos);
}

}  // namespace
}  // namespace opdock
