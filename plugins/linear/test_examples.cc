// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf linear_examples([](Examples& examples) {
  const opdock_value x = examples.array({4, 6}), columns = examples.array({4, 6}, {1, 4}),
                     vector = examples.array({5}), shorter = examples.array({4}),
                     weight = examples.array({5, 6}), turned = examples.array({6, 5}),
                     overlapping = examples.array({5, 6}, {1, 1}),
                     half = examples.array({5, 6}, {}, Type::kFloat16),
                     rows = examples.array({4, 5}), misaligned = examples.misaligned({4, 6}),
                     q = examples.array({6, 2, 3}), back = examples.array({6, 2, 3}, {1, 6, 12});
  const opdock_value gelu = examples.text("gelu"), wrong = examples.text("mish"),
                     yes = boolean(true), no = boolean(false);
  examples.add({"linear",
                "linear",
                {x, weight, vector, rows, none(), gelu, yes},
                {examples.gapped(4, 5)},
                {{columns, weight, vector, rows, none(), gelu, yes},
                 {misaligned, weight, vector, rows, none(), gelu, yes},
                 {x, weight, vector, rows, none(), gelu, no},
                 {x, overlapping, vector, rows, none(), gelu, yes},
                 {x, half, vector, rows, none(), gelu, yes},
                 {x, vector, vector, rows, none(), gelu, yes},
                 {x, weight, shorter, rows, none(), gelu, yes},
                 {x, weight, vector, x, none(), gelu, yes},
                 {x, weight, vector, vector, none(), gelu, yes},
                 {x, weight, vector, rows, none(), wrong, yes}}});
  examples.add({"linear",
                "linear",
                {x, turned, none(), none(), none(), gelu, no},
                {examples.gapped(4, 5)},
                {}});
  const opdock_value integers = examples.array({5, 6}, {}, Type::kInt8),
                     integer_columns = examples.array({5, 6}, {1, 5}, Type::kInt8),
                     scale = examples.array({10}),
                     halves = examples.array({10}, {}, Type::kFloat16);
  examples.add({"linear",
                "linear",
                {x, integers, vector, rows, scale, gelu, yes},
                {examples.gapped(4, 5)},
                {{x, integers, vector, rows, none(), gelu, yes},
                 {x, weight, vector, rows, scale, gelu, yes},
                 {x, integer_columns, vector, rows, scale, gelu, yes},
                 {x, integers, vector, rows, halves, gelu, yes},
                 {x, integers, vector, rows, shorter, gelu, yes},
                 {x, integers, vector, rows, scale, gelu, no}}});
  const opdock_value seven = examples.array({6}), other = examples.array({7, 6}),
                     six = examples.array({6, 6}), five = examples.array({6, 5}),
                     three = examples.array({5, 3}), columns_of_x = examples.array({4, 6}, {1, 4}),
                     silu = examples.text("silu"), no_gate = examples.text("none"),
                     layer = examples.text("layer"), rms = examples.text("rms"),
                     batch = examples.text("batch"), eps = number(1e-5), below = number(-1);
  examples.add({"linear",
                "gated_linear",
                {x, six, seven, none(), silu, no, yes},
                {examples.gapped(4, 3)},
                {{columns, six, seven, none(), silu, no, yes},
                 {x, other, none(), none(), silu, no, yes},
                 {x, weight, none(), none(), silu, no, yes},
                 {x, six, vector, none(), silu, no, yes},
                 {x, six, seven, none(), no_gate, no, yes}}});
  examples.add({"linear",
                "norm_linear",
                {x, weight, vector, seven, seven, none(), layer, eps, yes},
                {examples.gapped(4, 5), examples.gapped(4, 6)},
                {{columns_of_x, weight, vector, seven, seven, none(), layer, eps, yes},
                 {x, turned, vector, seven, seven, none(), layer, eps, yes},
                 {x, weight, shorter, seven, seven, none(), layer, eps, yes},
                 {x, weight, vector, vector, seven, none(), layer, eps, yes},
                 {x, weight, vector, seven, vector, none(), layer, eps, yes},
                 {x, weight, vector, seven, seven, none(), rms, eps, yes},
                 {x, weight, vector, seven, seven, none(), batch, eps, yes},
                 {x, weight, vector, seven, seven, none(), layer, below, yes}}});
  examples.add({"linear",
                "mlp",
                {x, six, three, seven, vector, none(), none(), gelu, yes, no, yes},
                {examples.gapped(4, 5)},
                {{columns, six, three, seven, vector, none(), none(), gelu, yes, no, yes},
                 {x, weight, three, seven, vector, none(), none(), gelu, yes, no, yes},
                 {x, six, five, seven, vector, none(), none(), gelu, yes, no, yes},
                 {x, six, three, vector, vector, none(), none(), gelu, yes, no, yes},
                 {x, six, three, seven, seven, none(), none(), gelu, yes, no, yes},
                 {x, six, three, seven, vector, none(), none(), no_gate, yes, no, yes},
                 {x, six, six, seven, seven, none(), none(), gelu, no, yes, yes}}});
  examples.add({"linear",
                "mlp",
                {x, six, weight, seven, vector, none(), none(), gelu, no, no, yes},
                {examples.gapped(4, 5)},
                {}});
  // Returns norm_mlp's arguments, with some of them replaced.
  const auto norm_mlp = [&](std::vector<std::pair<size_t, opdock_value>> changes) {
    std::vector<opdock_value> args = {x,     six,   weight, seven,  vector, x,
                                      seven, seven, seven,  none(), none(), layer,
                                      eps,   gelu,  no,     no,     yes};
    for (const auto& [at, value] : changes) args[at] = value;
    return args;
  };
  examples.add({"linear",
                "norm_mlp",
                norm_mlp({}),
                {examples.gapped(4, 5), examples.gapped(4, 6), examples.gapped(4, 6)},
                {norm_mlp({{0, columns}}), norm_mlp({{1, turned}}), norm_mlp({{2, turned}}),
                 norm_mlp({{3, vector}}), norm_mlp({{4, seven}}), norm_mlp({{5, rows}}),
                 norm_mlp({{5, none()}}), norm_mlp({{5, columns}}), norm_mlp({{6, vector}}),
                 norm_mlp({{7, vector}}), norm_mlp({{11, rms}}), norm_mlp({{12, below}}),
                 norm_mlp({{13, wrong}}), norm_mlp({{15, yes}})}});
  examples.add({"linear",
                "einsum_sec_sm_ecm",
                {q, turned},
                {examples.output({2, 3, 5})},
                {{x, turned}, {back, turned}, {q, weight}, {q, rows}, {q, vector}}});
});

}  // namespace opdock_test
