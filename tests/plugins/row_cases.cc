// SPDX-License-Identifier: Apache-2.0
#include "row_cases.h"

#include <cmath>

namespace opdock_test {

std::vector<int64_t> row_lengths() {
  std::vector<int64_t> lengths = {127, 128, 129, 4096, 14432};
  for (int64_t length = 1; length <= 70; ++length) lengths.push_back(length);
  return lengths;
}

std::vector<std::vector<int64_t>> batch_shapes() {
  return {{5}, {1, 1, 5}, {2, 3, 33}, {2, 1, 3, 2, 17}};
}

std::vector<std::vector<int64_t>> empty_shapes() {
  return {{0}, {0, 5}, {5, 0}, {2, 0, 3}};
}

void expect_close(const Array& out, const std::vector<Wanted>& wanted, double computed,
                  double absolute, const std::string& what) {
  for (int64_t i = 0; i < out.numel(); ++i) {
    const Wanted& want = wanted[static_cast<size_t>(i)];
    const double found = out.get(i);
    if (std::isnan(want.value)) {
      ASSERT_TRUE(std::isnan(found)) << what << " element " << i << " is " << found;
      continue;
    }
    const double rounding = half_ulp(out.type()) * (1 + 1e-3) * std::fabs(want.value);
    ASSERT_NEAR(found, want.value, rounding + computed * want.scale + absolute)
        << what << " element " << i;
  }
}

void expect_refused(const std::vector<Refusal>& refusals) {
  for (const auto& [result, argument, found] : refusals) {
    EXPECT_NE(result.status, OPDOCK_OK) << argument << " " << found;
    EXPECT_NE(result.status, OPDOCK_INTERNAL) << result.text;
    EXPECT_NE(result.text.find(argument), std::string::npos) << result.text;
    EXPECT_NE(result.text.find(found), std::string::npos) << result.text;
    EXPECT_NE(result.text.find("wanted"), std::string::npos) << result.text;
  }
}

}  // namespace opdock_test
