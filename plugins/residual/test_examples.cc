// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf residual_examples([](Examples& examples) {
  const opdock_value rows = examples.array({4, 6}), columns = examples.array({4, 6}, {1, 4}),
                     other = examples.array({6, 4}), vector = examples.array({6}),
                     shorter = examples.array({5}), twice = examples.array({12}),
                     misaligned = examples.misaligned({4, 6}),
                     half = examples.array({4, 6}, {}, Type::kFloat16),
                     form = examples.text("pre_norm"), post = examples.text("post_norm"),
                     wrong = examples.text("after"), one = number(1), two = number(2),
                     zero = number(0);
  examples.add({"residual",
                "residual_add",
                {rows, rows, rows, vector, vector, form, two},
                {examples.gapped(4, 6)},
                {{columns, rows, rows, vector, vector, form, two},
                 {misaligned, rows, rows, vector, vector, form, two},
                 {rows, other, rows, vector, vector, form, two},
                 {rows, rows, half, vector, vector, form, two},
                 {rows, rows, none(), vector, vector, form, two},
                 {rows, rows, rows, shorter, vector, form, two},
                 {rows, rows, rows, vector, shorter, form, two},
                 {rows, rows, rows, vector, none(), post, one},
                 {rows, rows, none(), vector, none(), post, two},
                 {rows, rows, rows, vector, vector, wrong, two},
                 {rows, rows, rows, vector, vector, form, zero}}});
  examples.add(
      {"residual",
       "vector_add",
       {rows, rows, two},
       {examples.gapped(4, 6)},
       {{columns, rows, two}, {rows, columns, two}, {rows, other, two}, {rows, half, two}}});
  examples.add(
      {"residual",
       "moe_res_matmul",
       {rows, twice, rows},
       {examples.gapped(4, 6)},
       {{columns, twice, rows}, {rows, vector, rows}, {rows, twice, other}, {rows, twice, half}}});
});

}  // namespace opdock_test
