// Calls softmax on a few float32 rows and checks the result.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "gpu.h"

namespace softgpu_ops {

inline constexpr int64_t kRows = 5, kLength = 200;
inline constexpr size_t kBytes = kRows * kLength * sizeof(float);

inline std::vector<float> numbers(float first) {
  std::vector<float> values(kRows * kLength);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(first + static_cast<float>(i * i % 1009));
  return values;
}

// Compares `found` with softmax computed in double.
inline void expect_softmax(const std::vector<float>& found, const std::vector<float>& x) {
  ASSERT_EQ(found.size(), x.size());
  for (size_t begin = 0; begin < x.size(); begin += kLength) {
    double sum = 0;
    for (size_t i = begin; i < begin + kLength; ++i) sum += std::exp(static_cast<double>(x[i]));
    for (size_t i = begin; i < begin + kLength; ++i)
      ASSERT_NEAR(found[i], std::exp(static_cast<double>(x[i])) / sum, 1e-7) << "element " << i;
  }
}

inline opdock::TensorView rows(void* memory, int index = 0) {
  return {static_cast<float*>(memory), {kRows, kLength}, device(index)};
}

// Reads the values at `from` in the stream's order; returns the driver's result.
inline int read(const void* from, std::vector<float>* values, void* stream) {
  values->assign(kRows * kLength, 0);
  return to_host(values->data(), from, kBytes, stream);
}

}  // namespace softgpu_ops
