// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf pad_rows_examples([](Examples& examples) {
  const opdock_value x = examples.array({4, 6}), columns = examples.array({4, 6}, {1, 4}),
                     integers = examples.array({4, 6}, {}, Type::kInt32),
                     misaligned = examples.misaligned({4, 6}), vector = examples.array({6}),
                     five = integer(5), eight = integer(8);
  examples.add({"pad_rows",
                "pad_rows",
                {x, five, eight},
                {examples.output({5, 8})},
                {{columns, five, eight},
                 {integers, five, eight},
                 {misaligned, five, eight},
                 {vector, five, eight},
                 {x, five, five}}});
});

}  // namespace opdock_test
