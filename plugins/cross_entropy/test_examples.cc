// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf cross_entropy_examples([](Examples& examples) {
  Array* const classes = examples.output({4}, {}, Type::kInt32);
  for (int64_t i = 0; i < 4; ++i) classes->set(i, i == 2 ? -100 : static_cast<double>(i));
  const opdock_value rows = examples.array({4, 6}), columns = examples.array({4, 6}, {1, 4}),
                     shorter = examples.array({3, 6}), none_at_all = examples.array({4, 0}),
                     misaligned = examples.misaligned({4, 6}), target = classes->value(),
                     numbers = examples.array({4}),
                     halves = examples.array({4}, {}, Type::kFloat16), three = examples.array({3}),
                     index = integer(-100), tenth = number(0.1);
  const auto loss = [&] { return examples.output({4}, {2}); };
  examples.add({"cross_entropy",
                "cross_entropy",
                {rows, target, index, tenth, none()},
                {loss()},
                {{columns, target, index, tenth, none()},
                 {misaligned, target, index, tenth, none()},
                 {none_at_all, target, index, tenth, none()},
                 {shorter, target, index, tenth, none()},
                 {rows, numbers, index, tenth, none()},
                 {rows, target, index, number(-0.1), none()}}});
  examples.add({"cross_entropy",
                "cross_entropy_with_gradient",
                {rows, target, numbers, index, tenth, none()},
                {loss(), examples.gapped(4, 6)},
                {{columns, target, numbers, index, tenth, none()},
                 {shorter, target, numbers, index, tenth, none()},
                 {rows, target, halves, index, tenth, none()},
                 {rows, target, three, index, tenth, none()},
                 {rows, target, numbers, index, number(2), none()}}});
  examples.add({"cross_entropy",
                "cross_entropy_backward",
                {rows, target, numbers, index, tenth},
                {examples.gapped(4, 6)},
                {{columns, target, numbers, index, tenth},
                 {rows, numbers, numbers, index, tenth},
                 {rows, target, halves, index, tenth},
                 {rows, target, three, index, tenth}}});
});

}  // namespace opdock_test
