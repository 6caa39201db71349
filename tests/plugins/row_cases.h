// What the tests of ops along the last dimension share: shapes, how close results must be, and how
// bad arguments must be refused.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "harness.h"

namespace opdock_test {

// The element types of such ops, as a parameter of tests; use with type_name().
inline auto every_type() {
  return testing::Values(Type::kFloat32, Type::kFloat16, Type::kBFloat16, Type::kFloat64);
}
inline std::string type_name(const testing::TestParamInfo<Type>& info) {
  return name_of(info.param);
}

// 1 to 70, which every vector's width divides or not, and some longer.
std::vector<int64_t> row_lengths();
std::vector<std::vector<int64_t>> batch_shapes();
std::vector<std::vector<int64_t>> empty_shapes();

struct Wanted {
  double value;  // by an oracle
  double scale;  // what the computation's rounding errors are relative to
};

// Each element is what is wanted but for its own rounding, half an ulp; the computation's,
// `computed` times the scale; and `absolute`, for results among the subnormal numbers. NaN is
// wanted as NaN.
void expect_close(const Array& out, const std::vector<Wanted>& wanted, double computed,
                  double absolute, const std::string& what);

// A call that must fail: with a text that holds the argument's name and what came.
struct Refusal {
  Result result;
  const char* argument;
  const char* found;
};
void expect_refused(const std::vector<Refusal>& refusals);

}  // namespace opdock_test
