// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "examples.h"

namespace opdock_test {

static opdock_value numbers(Examples& examples, std::vector<int64_t> shape,
                            const std::vector<double>& values, Type type = Type::kInt32) {
  Array* const made = examples.output(std::move(shape), {}, type);
  for (size_t i = 0; i < values.size(); ++i) made->set(static_cast<int64_t>(i), values[i]);
  return made->value();
}

static void add_activations(Examples& examples) {
  const opdock_value x = examples.array({4, 6}), bias = examples.array({6}),
                     columns = examples.array({4, 6}, {1, 4}), odd = examples.array({4, 5}),
                     misaligned = examples.misaligned({4, 6}),
                     wide = examples.array({4, 6}, {}, Type::kFloat64),
                     apart = examples.array({2, 3, 6}, {50, 7, 1}),
                     half = examples.array({6}, {}, Type::kFloat16), silu = examples.text("silu"),
                     mish = examples.text("mish"), no_one = none();
  examples.add({"ragged",
                "bias_activation",
                {x, bias, silu},
                {examples.gapped(4, 6)},
                {{columns, bias, silu},
                 {misaligned, bias, silu},
                 {wide, no_one, silu},
                 {x, half, silu},
                 {odd, bias, silu},
                 {x, bias, mish}}});
  examples.add({"ragged",
                "interleaved_gate",
                {x, bias, silu},
                {examples.output({4, 3})},
                {{columns, bias, silu},
                 {misaligned, bias, silu},
                 {odd, no_one, silu},
                 {apart, no_one, silu},
                 {x, half, silu},
                 {x, bias, mish}}});
}

static void add_rows(Examples& examples, opdock_value batch, opdock_value sequences,
                     opdock_value tokens) {
  const opdock_value table = examples.array({5, 8}, {9, 1}), places = examples.array({4, 8}),
                     ids = numbers(examples, {5}, {3, 0, 4, 2, 9}), flat = examples.array({40}),
                     columns = examples.array({5, 8}, {1, 5}),
                     few = numbers(examples, {3}, {0, 0, 1}), none_there = examples.array({0, 8}),
                     narrow = examples.array({4, 7}), floats = examples.array({5}),
                     wide = examples.array({5, 8}, {}, Type::kFloat64), offset = integer(-1),
                     no_one = none();
  examples.add({"ragged",
                "ragged_embed",
                {table, ids, batch, sequences, tokens, places, offset},
                {examples.output({5, 8})},
                {{flat, ids, batch, sequences, tokens, no_one, offset},
                 {wide, ids, batch, sequences, tokens, no_one, offset},
                 {columns, ids, batch, sequences, tokens, no_one, offset},
                 {table, floats, batch, sequences, tokens, no_one, offset},
                 {table, ids, few, sequences, tokens, no_one, offset},
                 {table, ids, batch, batch, tokens, no_one, offset},
                 {table, ids, batch, sequences, few, no_one, offset},
                 {table, ids, batch, sequences, tokens, narrow, offset},
                 {table, ids, batch, sequences, tokens, none_there, offset}}});
  examples.add({"ragged",
                "gather_last_tokens",
                {table, batch, sequences},
                {examples.output({2, 8})},
                {{flat, batch, sequences},
                 {wide, batch, sequences},
                 {columns, batch, sequences},
                 {table, few, sequences},
                 {table, batch, batch}}});
}

static void add_experts(Examples& examples, opdock_value batch) {
  const opdock_value logits = examples.array({5, 3}), two = integer(2), zero = integer(0),
                     many = integer(4), wide = examples.array({5, 3}, {}, Type::kFloat64),
                     flat = examples.array({15}), x = examples.array({5, 8}, {9, 1}),
                     few = numbers(examples, {1}, {4}), floats = examples.array({3}),
                     counts = numbers(examples, {3}, {4, 1, 3}),
                     assignments = numbers(examples, {5, 2}, {0, 2, 2, 0, 0, 1, 2, 0, -1, -1}),
                     offsets = numbers(examples, {5, 2}, {0, 0, 1, 1, 2, 0, 2, 3, -1, -1}),
                     shorter = numbers(examples, {4, 2}, {0, 0, 0, 0, 0, 0, 0, 0}),
                     slots = numbers(examples, {5, 2}, {0, 5, 6, 1, 2, 4, 7, 3, -1, -1}),
                     scores = examples.array({5, 2}), less = examples.array({5, 1}),
                     rows = examples.array({10, 8}), yes = boolean(true);
  examples.add(
      {"ragged",
       "top_k_gating",
       {logits, batch, two},
       {examples.output({3}, {}, Type::kInt32), examples.output({5, 2}),
        examples.output({5, 2}, {}, Type::kInt32), examples.output({5, 2}, {}, Type::kInt32)},
       {{flat, batch, two},
        {wide, batch, two},
        {logits, few, two},
        {logits, batch, zero},
        {logits, batch, many}}});
  examples.add({"ragged",
                "moe_scatter",
                {x, counts, assignments, offsets},
                {examples.output({10, 8}), examples.output({3}, {}, Type::kInt64),
                 examples.output({5, 2}, {}, Type::kInt32)},
                {{flat, counts, assignments, offsets},
                 {wide, counts, assignments, offsets},
                 {x, floats, assignments, offsets},
                 {x, counts, shorter, shorter},
                 {x, counts, assignments, shorter}}});
  Array* const cleared = examples.output({3}, {}, Type::kInt32);
  examples.add({"ragged",
                "moe_gather",
                {rows, scores, slots, cleared->value(), yes},
                {examples.output({5, 8})},
                {{flat, scores, slots, none(), yes},
                 {rows, less, slots, none(), yes},
                 {rows, scores, scores, none(), yes},
                 {rows, scores, slots, floats, yes}},
                true,
                false,
                {cleared}});
}

static void add_blocks(Examples& examples, opdock_value batch, opdock_value sequences,
                       opdock_value tokens) {
  const opdock_value k = examples.array({5, 16}), cache = examples.array({4, 2, 2, 2, 8}),
                     q = examples.array({5, 32}), frequencies = examples.array({4}),
                     table = numbers(examples, {2, 3}, {2, 0, -1, 3, 1, -1}),
                     flat = examples.array({80}), fewer = examples.array({4, 16}),
                     half = examples.array({4, 2, 2, 2, 8}, {}, Type::kFloat16),
                     other = examples.array({4, 2, 2, 8}), many = examples.array({5}),
                     part_q = examples.array({5, 20}), no_one = none();
  examples.add({"ragged",
                "append_blocks",
                {k, k, cache, batch, sequences, tokens, table, q, frequencies},
                {},
                {{flat, k, cache, batch, sequences, tokens, table, no_one, no_one},
                 {k, fewer, cache, batch, sequences, tokens, table, no_one, no_one},
                 {k, k, half, batch, sequences, tokens, table, no_one, no_one},
                 {k, k, other, batch, sequences, tokens, table, no_one, no_one},
                 {k, k, cache, tokens, sequences, tokens, table, no_one, no_one},
                 {k, k, cache, batch, batch, tokens, table, no_one, no_one},
                 {k, k, cache, batch, sequences, batch, table, no_one, no_one},
                 {k, k, cache, batch, sequences, tokens, k, no_one, no_one},
                 {k, k, cache, batch, sequences, tokens, table, q, no_one},
                 {k, k, cache, batch, sequences, tokens, table, part_q, frequencies},
                 {k, k, cache, batch, sequences, tokens, table, q, many}}});

  const opdock_value lists = numbers(examples, {2}, {4096, 8192}, Type::kInt64), block = integer(2),
                     zero = integer(0);
  Array *const atoms = examples.output({3, 8}, {}, Type::kInt32), *const narrow = examples.output(
                                                                      {3, 7}, {}, Type::kInt32);
  examples.add({"ragged",
                "build_atoms",
                {atoms->value(), batch, sequences, lists, block, block},
                {examples.output({1}, {}, Type::kInt32)},
                {{narrow->value(), batch, sequences, lists, block, block},
                 {atoms->value(), batch, sequences, table, block, block},
                 {atoms->value(), batch, sequences, lists, zero, block},
                 {atoms->value(), batch, sequences, lists, block, zero}},
                false,
                false,
                {atoms}});

  // The three tokens of the first sequence, at positions 0 to 2, and one more at position 3.
  const opdock_value of = numbers(examples, {2, 8},
                                  {0, 0, 0, 3, 2, 3, 0, 0,  //
                                   1, 0, 3, 2, 2, 4, 2, 0}),
                     keys = examples.array({4, 2, 2, 8}), values = examples.array({4, 2, 2, 8}),
                     less = examples.array({3, 2, 2, 8}), scale = number(0.3), yes = boolean(true),
                     short_heads = examples.array({4, 2, 2, 4});
  Array *const out = examples.output({5, 32}), *const other_out = examples.output({5, 24});
  const opdock_value o = out->value();
  examples.add({"ragged",
                "attention_by_atoms",
                {o, q, keys, values, of, table, scale, yes},
                {},
                {{other_out->value(), q, keys, values, of, table, scale, yes},
                 {o, k, keys, values, of, table, scale, yes},
                 {o, q, half, values, of, table, scale, yes},
                 {o, q, keys, less, of, table, scale, yes},
                 {o, q, short_heads, short_heads, of, table, scale, yes},
                 {o, q, keys, values, table, table, scale, yes},
                 {o, q, keys, values, of, tokens, scale, yes},
                 {o, q, keys, values, of, table, number(INFINITY), yes}},
                true,
                false,
                {out},
                true});
}

static const ExamplesOf ragged_examples([](Examples& examples) {
  // Three tokens of a sequence, one of another that has two already, and one of padding.
  const opdock_value batch = numbers(examples, {2}, {4, 2}),
                     sequences = numbers(examples, {2, 4}, {0, 3, 0, 0, 3, 1, 2, 0}),
                     tokens = numbers(examples, {5}, {0, 0, 0, 1, -1});
  add_activations(examples);
  add_rows(examples, batch, sequences, tokens);
  add_experts(examples, batch);
  add_blocks(examples, batch, sequences, tokens);
});

}  // namespace opdock_test
