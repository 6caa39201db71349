// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf muon_examples([](Examples& examples) {
  const opdock_value wide = examples.array({2, 3, 5}), tall = examples.array({5, 3}),
                     vector = examples.array({5}), turned = examples.array({5, 3}, {1, 5}),
                     gaps = examples.array({5, 3}, {4, 1}), three = integer(3),
                     none_at_all = integer(0), many = integer(100), a = number(3.4445),
                     b = number(-4.775), c = number(2.0315), endless = number(1e300);
  examples.add({"muon",
                "newton_schulz",
                {wide, three, a, b, c},
                {examples.output({2, 3, 5})},
                {{vector, three, a, b, c},
                 {turned, three, a, b, c},
                 {gaps, three, a, b, c},
                 {wide, none_at_all, a, b, c},
                 {wide, many, a, b, c},
                 {wide, three, endless, b, c}}});
  examples.add(
      {"muon", "newton_schulz", {tall, integer(2), a, b, c}, {examples.output({5, 3})}, {}});
});

}  // namespace opdock_test
