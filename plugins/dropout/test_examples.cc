// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf dropout_examples([](Examples& examples) {
  const opdock_value x = examples.array({4, 6}), columns = examples.array({4, 6}, {1, 4}),
                     misaligned = examples.misaligned({4, 6}),
                     integers = examples.array({4, 6}, {}, Type::kInt32),
                     mask = examples.array({4, 6}, {}, Type::kBool),
                     shorter = examples.array({4, 5}, {}, Type::kBool),
                     across = examples.array({4, 6}, {1, 4}, Type::kBool);
  const opdock_value p = number(0.4), wrong = number(1.1), generator = examples.generator();
  examples.add({"dropout",
                "dropout",
                {x, p, generator},
                {examples.output({4, 6}), examples.output({4, 6}, {}, Type::kBool)},
                {{columns, p, generator},
                 {misaligned, p, generator},
                 {integers, p, generator},
                 {x, wrong, generator}}});
  const opdock_value sum = examples.array({4, 6}), other = examples.array({4, 5});
  examples.add({"dropout",
                "dropout_add",
                {x, sum, p, generator},
                {examples.output({4, 6}), examples.output({4, 6}, {}, Type::kBool)},
                {{x, columns, p, generator},
                 {x, misaligned, p, generator},
                 {x, other, p, generator},
                 {x, integers, p, generator},
                 {x, sum, wrong, generator}}});
  examples.add({"dropout",
                "dropout_backward",
                {x, mask, p},
                {examples.output({4, 6})},
                {{columns, mask, p},
                 {misaligned, mask, p},
                 {integers, mask, p},
                 {x, shorter, p},
                 {x, across, p},
                 {x, x, p},
                 {x, mask, wrong}}});
});

}  // namespace opdock_test
