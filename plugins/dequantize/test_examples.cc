// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf dequantize_examples([](Examples& examples) {
  const opdock_value q = examples.array({4, 6}, {}, Type::kInt8),
                     columns = examples.array({4, 6}, {1, 4}, Type::kInt8),
                     floats = examples.array({4, 6}), scale = examples.array({8}),
                     matrix = examples.array({2, 4}), five = examples.array({5}),
                     halves = examples.array({8}, {}, Type::kFloat16);
  examples.add({"dequantize",
                "dequantize",
                {q, scale, none()},
                {examples.output({4, 6})},
                {{columns, scale, none()},
                 {floats, scale, none()},
                 {q, matrix, none()},
                 {q, five, none()},
                 {q, halves, none()}}});
});

}  // namespace opdock_test
