// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf rope_examples([](Examples& examples) {
  const opdock_value q = examples.array({4, 3, 8}), k = examples.array({4, 2, 8}),
                     cos = examples.array({6, 4}), sin = examples.array({6, 4}),
                     part = examples.array({6, 3}),
                     half_q = examples.array({4, 3, 8}, {}, Type::kFloat16),
                     half_k = examples.array({4, 2, 8}, {}, Type::kFloat16),
                     half_cos = examples.array({6, 4}, {}, Type::kFloat16),
                     half_sin = examples.array({6, 4}, {}, Type::kFloat16),
                     swapped = examples.array({4, 3, 8}, {24, 1, 3}),
                     fewer = examples.array({3, 2, 8}), shorter = examples.array({4, 2, 6}),
                     flat = examples.array({4, 24}), odd_q = examples.array({4, 3, 7}),
                     odd_k = examples.array({4, 2, 7}), narrow = examples.array({6, 2}),
                     few_rows = examples.array({3, 4}), columns = examples.array({6, 4}, {1, 6}),
                     wide = examples.array({6, 5}), misaligned = examples.misaligned({4, 3, 8}),
                     no = boolean(false), yes = boolean(true),
                     places = examples.array({4}, {}, Type::kInt32),
                     few_places = examples.array({3}, {}, Type::kInt32),
                     numbers = examples.array({4});
  const auto outputs = [&] {
    return std::vector<Array*>{examples.output({4, 3, 8}, {60, 20, 1}),
                               examples.output({4, 2, 8}, {17, 8, 1})};
  };
  for (const char* op : {"rope", "rope_backward"}) {
    examples.add({"rope",
                  op,
                  {q, k, cos, sin, none(), no},
                  outputs(),
                  {{flat, k, cos, sin, none(), no},
                   {swapped, k, cos, sin, none(), no},
                   {misaligned, k, cos, sin, none(), no},
                   {odd_q, odd_k, narrow, narrow, none(), no},
                   {q, half_k, cos, sin, none(), no},
                   {q, fewer, cos, sin, none(), no},
                   {q, shorter, cos, sin, none(), no},
                   {q, k, half_cos, half_sin, none(), no},
                   {q, k, columns, sin, none(), no},
                   {q, k, wide, wide, none(), no},
                   {q, k, few_rows, few_rows, none(), no},
                   {q, k, cos, part, none(), no},
                   {q, k, cos, columns, none(), no},
                   {q, k, cos, sin, few_places, no},
                   {q, k, cos, sin, numbers, no},
                   {q, k, few_rows, cos, places, no}}});
    examples.add({"rope", op, {q, k, part, part, none(), yes}, outputs(), {}});
    examples.add({"rope",
                  op,
                  {half_q, half_k, half_cos, half_sin, none(), yes},
                  {examples.output({4, 3, 8}, {}, Type::kFloat16),
                   examples.output({4, 2, 8}, {}, Type::kFloat16)},
                  {{half_q, k, half_cos, half_sin, none(), yes},
                   {half_q, half_k, half_cos, sin, none(), yes}}});
  }
});

}  // namespace opdock_test
