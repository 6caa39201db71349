// Shared by the tests of row ops (ops along the last dimension): shapes, the required accuracy, and
// how bad arguments must be refused.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "harness.h"

namespace opdock_test {

// The element types of row ops as a test parameter; use with type_name().
inline auto every_type() {
  return testing::Values(Type::kFloat32, Type::kFloat16, Type::kBFloat16, Type::kFloat64);
}
inline std::string type_name(const testing::TestParamInfo<Type>& info) {
  return name_of(info.param);
}

// Returns 1 to 70, which cover divisible and indivisible lengths for every vector width, and some
// longer ones.
std::vector<int64_t> row_lengths();
std::vector<std::vector<int64_t>> batch_shapes();
std::vector<std::vector<int64_t>> empty_shapes();

struct Wanted {
  double value;  // the reference value
  double scale;  // magnitude that the computation's rounding errors are relative to
};

// Expects each element to equal the wanted value within its own rounding error (half an ulp), plus
// `computed` times the scale for the computation's rounding errors, plus `absolute` for results
// among the subnormal numbers. A wanted NaN requires a NaN.
void expect_close(const Array& out, const std::vector<Wanted>& wanted, double computed,
                  double absolute, const std::string& what);

// A call that must fail, with a message that contains the argument's name and the value found.
struct Refusal {
  Result result;
  const char* argument;
  const char* found;
};
void expect_refused(const std::vector<Refusal>& refusals);

}  // namespace opdock_test
