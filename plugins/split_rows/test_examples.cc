// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf split_rows_examples([](Examples& examples) {
  const opdock_value x = examples.array({6, 5}), columns = examples.array({6, 5}, {1, 6}),
                     half = examples.array({2, 5}, {}, Type::kFloat16);
  const auto sizes = [&](std::vector<int64_t> all) {
    std::vector<opdock_value> items;
    for (const int64_t size : all) items.push_back(integer(size));
    return examples.list(items);
  };
  examples.add({"split_rows",
                "split_rows",
                {x, sizes({2, 0, 4})},
                {examples.output({2, 5}), examples.output({0, 5}), examples.output({4, 5})},
                {{x, sizes({2, 3})},
                 {x, sizes({2, 0, 5})},
                 {x, sizes({7, -1})},
                 {columns, sizes({2, 0, 4})}}});
  const opdock_value two = examples.array({2, 5}), none = examples.array({0, 5}),
                     four = examples.array({4, 5}), narrow = examples.array({4, 4}),
                     apart = examples.array({4, 5}, {7, 1});
  examples.add({"split_rows",
                "split_rows_backward",
                {examples.list({two, none, four}), x},
                {examples.output({6, 5})},
                {{examples.list({two, none}), x},
                 {examples.list({two, two, four}), x},
                 {examples.list({two, none, narrow}), x},
                 {examples.list({two, none, apart}), x},
                 {examples.list({half, none, four}), x}}});
});

}  // namespace opdock_test
