// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf random_ltd_examples([](Examples& examples) {
  // Numbers of tokens, which differ from each other in each row.
  Array* const numbers = examples.output({2, 3}, {}, Type::kInt32);
  for (int64_t i = 0; i < numbers->numel(); ++i) numbers->set(i, static_cast<double>(i * 4 % 7));
  const opdock_value index = numbers->value(), x = examples.array({2, 7, 5}),
                     part = examples.array({2, 3, 5}), narrow = examples.array({2, 3, 4}),
                     turned = examples.array({2, 7, 5}, {35, 1, 7}),
                     integers = examples.array({2, 7, 5}, {}, Type::kInt32),
                     floats = examples.array({2, 3}), one_row = examples.array({1, 7, 5}),
                     across = examples.array({2, 3}, {1, 2}, Type::kInt32), yes = boolean(true);
  examples.add({"random_ltd",
                "token_sort",
                {index, integer(7)},
                {examples.output({2, 3}, {}, Type::kInt32)},
                {{floats, integer(7)}, {across, integer(7)}, {index, integer(-1)}}});
  examples.add({"random_ltd",
                "token_gather",
                {x, index, yes},
                {examples.output({2, 3, 5})},
                {{integers, index, yes},
                 {turned, index, yes},
                 {one_row, index, yes},
                 {x, floats, yes},
                 {x, across, yes}}});
  examples.add({"random_ltd",
                "token_gather_backward",
                {part, x, index, yes},
                {examples.output({2, 7, 5})},
                {{narrow, x, index, yes}, {part, one_row, index, yes}, {part, x, floats, yes}}});
  // It has as many tokens as there are: the op writes over all of them.
  Array* const order = examples.output({2, 3}, {}, Type::kInt32);
  for (int64_t i = 0; i < order->numel(); ++i) order->set(i, static_cast<double>(i * 2 % 3));
  Array* const all = examples.output({2, 3, 5});
  examples.add({.plugin = "random_ltd",
                .op = "token_scatter_",
                .args = {all->value(), part, order->value(), yes},
                .outputs = {},
                .invalid_args = {{all->value(), narrow, order->value(), yes},
                                 {all->value(), part, floats, yes},
                                 {one_row, part, order->value(), yes}},
                .written = {all}});
});

}  // namespace opdock_test
