// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf bias_gelu_examples([](Examples& examples) {
  const opdock_value rows = examples.array({4, 6}), columns = examples.array({4, 6}, {1, 4}),
                     vector = examples.array({6}), shorter = examples.array({5}),
                     half = examples.array({6}, {}, Type::kFloat16);
  examples.add({"bias_gelu",
                "bias_gelu",
                {rows, vector},
                {examples.output({4, 6})},
                {{columns, vector},
                 {rows, shorter},
                 {rows, half},
                 {rows, rows},
                 {examples.misaligned({4, 6}), vector}}});
});

}  // namespace opdock_test
