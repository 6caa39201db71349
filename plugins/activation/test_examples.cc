// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf activation_examples([](Examples& examples) {
  const opdock_value rows = examples.array({4, 6}), columns = examples.array({4, 6}, {1, 4}),
                     vector = examples.array({6}), shorter = examples.array({5}),
                     other = examples.array({6, 4}), odd = examples.array({4, 5}),
                     halves = examples.array({4, 3}), misaligned = examples.misaligned({4, 6}),
                     half = examples.array({4, 6}, {}, Type::kFloat16),
                     half_vector = examples.array({6}, {}, Type::kFloat16),
                     tanh = examples.text("tanh"), wrong = examples.text("half");
  auto add = [&](const char* op, std::vector<opdock_value> args, std::vector<Array*> outputs,
                 std::vector<std::vector<opdock_value>> invalid_args) {
    examples.add({"activation", op, std::move(args), std::move(outputs), std::move(invalid_args)});
  };
  for (const char* op : {"bias_add", "bias_relu"})
    add(op, {rows, vector}, {examples.gapped(4, 6)},
        {{columns, vector},
         {misaligned, vector},
         {rows, shorter},
         {rows, rows},
         {rows, half_vector}});
  add("bias_gelu", {rows, vector, tanh}, {examples.gapped(4, 6)},
      {{columns, vector, tanh}, {rows, shorter, tanh}, {rows, vector, wrong}});
  add("silu", {rows}, {examples.gapped(4, 6)}, {{columns}, {misaligned}});
  add("silu_mul", {rows, rows}, {examples.gapped(4, 6)},
      {{columns, rows}, {rows, columns}, {rows, other}, {rows, half}, {misaligned, rows}});
  add("gelu_mul", {rows, rows, tanh}, {examples.gapped(4, 6)},
      {{columns, rows, tanh}, {rows, other, tanh}, {rows, rows, wrong}});
  add("geglu", {rows, vector, tanh}, {examples.gapped(4, 3)},
      {{columns, vector, tanh}, {odd, none(), tanh}, {rows, shorter, tanh}, {rows, vector, wrong}});
  add("swiglu", {rows, vector}, {examples.gapped(4, 3)},
      {{columns, vector}, {odd, none()}, {rows, shorter}});

  add("bias_add_backward", {rows}, {examples.gapped(4, 6), examples.output({6})},
      {{columns}, {misaligned}});
  add("bias_relu_backward", {rows, rows, vector}, {examples.gapped(4, 6), examples.output({6})},
      {{columns, rows, vector},
       {rows, columns, vector},
       {other, rows, vector},
       {rows, rows, shorter}});
  add("bias_gelu_backward", {rows, rows, vector, tanh},
      {examples.gapped(4, 6), examples.output({6})},
      {{half, rows, vector, tanh}, {rows, rows, half_vector, tanh}, {rows, rows, vector, wrong}});
  add("silu_backward", {rows, rows}, {examples.gapped(4, 6)},
      {{columns, rows}, {rows, columns}, {other, rows}, {half, rows}});
  add("silu_mul_backward", {rows, rows, rows}, {examples.gapped(4, 6), examples.gapped(4, 6)},
      {{other, rows, rows}, {rows, columns, rows}, {rows, rows, other}});
  add("gelu_mul_backward", {rows, rows, rows, tanh}, {examples.gapped(4, 6), examples.gapped(4, 6)},
      {{columns, rows, rows, tanh}, {rows, rows, half, tanh}, {rows, rows, rows, wrong}});
  add("geglu_backward", {halves, rows, vector, tanh}, {examples.gapped(4, 6), examples.output({6})},
      {{rows, rows, vector, tanh},
       {halves, odd, none(), tanh},
       {halves, rows, shorter, tanh},
       {halves, columns, vector, tanh},
       {halves, rows, vector, wrong}});
  add("swiglu_backward", {halves, rows, vector}, {examples.gapped(4, 6), examples.output({6})},
      {{rows, rows, vector}, {halves, odd, none()}, {halves, rows, shorter}});
});

}  // namespace opdock_test
