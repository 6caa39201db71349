// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf attention_examples([](Examples& examples) {
  const opdock_value q = examples.array({2, 3, 4, 8}), k = examples.array({2, 5, 2, 8}),
                     one_q = examples.array({2, 1, 4, 8}), flat = examples.array({2, 3, 32}),
                     swapped = examples.array({2, 3, 4, 8}, {96, 32, 1, 4}),
                     misaligned = examples.misaligned({2, 3, 4, 8}),
                     half = examples.array({2, 5, 2, 8}, {}, Type::kFloat16),
                     half_q = examples.array({2, 3, 4, 8}, {}, Type::kFloat16),
                     fewer = examples.array({1, 5, 2, 8}), other = examples.array({2, 4, 2, 8}),
                     three = examples.array({2, 5, 3, 8}),
                     eight = examples.array({2, 5, 2, 8}, {}, Type::kInt8),
                     scales = examples.array({2, 5, 2}), slopes = examples.array({4}),
                     mask = examples.array({2, 1, 1, 5}), no_mask = examples.array({2, 5}),
                     no = boolean(false), yes = boolean(true), zero = integer(0),
                     window = integer(2), scale = number(0.5), no_one = none();
  const auto output = [&] { return std::vector<Array*>{examples.output({2, 3, 4, 8})}; };
  examples.add(
      {"attention",
       "attention",
       {q, k, k, no_one, mask, no_one, slopes, no_one, no_one, scale, yes, window},
       output(),
       {{flat, k, k, no_one, mask, no_one, slopes, no_one, no_one, scale, yes, window},
        {swapped, k, k, no_one, mask, no_one, slopes, no_one, no_one, scale, yes, window},
        {misaligned, k, k, no_one, mask, no_one, slopes, no_one, no_one, scale, yes, window},
        {q, half, half, no_one, mask, no_one, slopes, no_one, no_one, scale, yes, window},
        {q, fewer, fewer, no_one, mask, no_one, slopes, no_one, no_one, scale, yes, window},
        {q, three, three, no_one, mask, no_one, slopes, no_one, no_one, scale, yes, window},
        {q, k, other, no_one, mask, no_one, slopes, no_one, no_one, scale, yes, window},
        {q, k, k, slopes, mask, no_one, slopes, no_one, no_one, scale, yes, window},
        {q, k, k, no_one, no_mask, no_one, slopes, no_one, no_one, scale, yes, window},
        {q, k, k, no_one, mask, no_one, scales, no_one, no_one, scale, yes, window},
        {q, k, k, no_one, mask, no_one, slopes, scales, scales, scale, yes, window},
        {q, k, k, no_one, mask, no_one, slopes, no_one, no_one, scale, no, window}}});
  examples.add(
      {"attention",
       "attention",
       {half_q, half, half, no_one, no_one, no_one, no_one, no_one, no_one, no_one, no, zero},
       {examples.output({2, 3, 4, 8}, {}, Type::kFloat16)},
       {}});
  examples.add(
      {"attention",
       "attention",
       {one_q, eight, eight, no_one, no_one, no_one, no_one, scales, scales, no_one, no, zero},
       {examples.output({2, 1, 4, 8})},
       {{one_q, eight, eight, no_one, no_one, no_one, no_one, no_one, no_one, no_one, no, zero}}});

  const opdock_value lse = examples.array({2, 4, 3}), other_lse = examples.array({2, 3, 4});
  examples.add(
      {"attention",
       "attention_forward",
       {q, k, k, no_one, mask, no_one, slopes, no_one, no_one, scale, yes, window, no_one},
       {examples.output({2, 3, 4, 8}), examples.output({2, 4, 3})},
       {{q, k, other, no_one, mask, no_one, slopes, no_one, no_one, scale, yes, window, no_one}}});
  examples.add(
      {"attention",
       "attention_backward",
       {q, q, k, k, q, lse, no_one, no_one, mask, no_one, slopes, scale, yes, window},
       {examples.output({2, 3, 4, 8}), examples.output({2, 5, 2, 8}),
        examples.output({2, 5, 2, 8})},
       {{half_q, q, k, k, q, lse, no_one, no_one, mask, no_one, slopes, scale, yes, window},
        {q, q, eight, eight, q, lse, no_one, no_one, mask, no_one, slopes, scale, yes, window},
        {q, q, k, k, swapped, lse, no_one, no_one, mask, no_one, slopes, scale, yes, window},
        {q, q, k, k, q, other_lse, no_one, no_one, mask, no_one, slopes, scale, yes, window},
        {q, q, k, k, q, lse, other_lse, no_one, mask, no_one, slopes, scale, yes, window}}});

  Array* const drawn = examples.output({2}, {}, Type::kInt64);
  const opdock_value p = number(0.4), wrong = number(1.1), generator = examples.generator(),
                     seed = drawn->value(), all_lse_of_q = examples.array({2, 4, 3}),
                     across_k = examples.array({2, 5, 2, 8}, {80, 1, 40, 5});
  examples.add(
      {"attention",
       "attention_dropout",
       {q, k, k, p, no_one, mask, no_one, slopes, scale, yes, window, no_one, generator},
       {examples.output({2, 3, 4, 8}), examples.output({2, 4, 3}),
        examples.output({2}, {}, Type::kInt64)},
       {{q, k, k, wrong, no_one, mask, no_one, slopes, scale, yes, window, no_one, generator},
        {q, across_k, k, p, no_one, mask, no_one, slopes, scale, yes, window, no_one, generator},
        {q, eight, eight, p, no_one, mask, no_one, slopes, scale, yes, window, no_one,
         generator}}});
  examples.add({"attention",
                "attention_dropout_backward",
                {q, q, k, k, q, all_lse_of_q, no_one, seed, p, no_one, mask, no_one, slopes, scale,
                 yes, window},
                {examples.output({2, 3, 4, 8}), examples.output({2, 5, 2, 8}),
                 examples.output({2, 5, 2, 8})},
                {{q, q, k, k, q, all_lse_of_q, no_one, slopes, p, no_one, mask, no_one, slopes,
                  scale, yes, window},
                 {q, q, k, k, q, all_lse_of_q, no_one, seed, wrong, no_one, mask, no_one, slopes,
                  scale, yes, window}}});

  Array* const ends = examples.output({3}, {}, Type::kInt32);  // two sequences' bounds
  for (int64_t i = 0; i < 3; ++i) ends->set(i, static_cast<double>(2 * i));
  const opdock_value all_q = examples.array({5, 4, 8}), all_k = examples.array({4, 2, 8}),
                     all_half = examples.array({4, 2, 8}, {}, Type::kFloat16),
                     all_three = examples.array({4, 3, 8}), all_lse = examples.array({4, 5}),
                     seqlens = ends->value(), one_end = examples.array({1}, {}, Type::kInt32),
                     across = examples.array({5, 4, 8}, {32, 1, 4});
  examples.add(
      {"attention",
       "attention_varlen",
       {all_q, all_k, all_k, seqlens, seqlens, slopes, scale, yes, window, no_one},
       {examples.output({5, 4, 8}), examples.output({4, 5})},
       {{q, all_k, all_k, seqlens, seqlens, slopes, scale, yes, window, no_one},
        {across, all_k, all_k, seqlens, seqlens, slopes, scale, yes, window, no_one},
        {all_q, all_half, all_half, seqlens, seqlens, slopes, scale, yes, window, no_one},
        {all_q, all_three, all_three, seqlens, seqlens, slopes, scale, yes, window, no_one},
        {all_q, all_k, all_q, seqlens, seqlens, slopes, scale, yes, window, no_one},
        {all_q, all_k, all_k, slopes, seqlens, slopes, scale, yes, window, no_one},
        {all_q, all_k, all_k, seqlens, one_end, slopes, scale, yes, window, no_one},
        {all_q, all_k, all_k, seqlens, seqlens, scales, scale, yes, window, no_one},
        {all_q, all_k, all_k, seqlens, seqlens, slopes, scale, no, window, no_one}}});
  examples.add(
      {"attention",
       "attention_varlen_backward",
       {all_q, all_q, all_k, all_k, all_q, all_lse, no_one, seqlens, seqlens, slopes, scale, yes,
        window},
       {examples.output({5, 4, 8}), examples.output({4, 2, 8}), examples.output({4, 2, 8})},
       {{all_k, all_q, all_k, all_k, all_q, all_lse, no_one, seqlens, seqlens, slopes, scale, yes,
         window},
        {all_q, all_q, all_k, all_k, across, all_lse, no_one, seqlens, seqlens, slopes, scale, yes,
         window},
        {all_q, all_q, all_k, all_k, all_q, lse, no_one, seqlens, seqlens, slopes, scale, yes,
         window},
        {all_q, all_q, all_k, all_k, all_q, all_lse, lse, seqlens, seqlens, slopes, scale, yes,
         window},
        {all_q, all_q, all_k, all_k, all_q, all_lse, no_one, one_end, seqlens, slopes, scale, yes,
         window}}});

  const opdock_value bias_like = examples.array({2, 1, 3, 5}),
                     bad_like = examples.array({2, 2, 3, 5}),
                     eights = examples.array({2, 1, 3, 5}, {}, Type::kInt8);
  examples.add(
      {"attention",
       "attention_added_backward",
       {q, q, k, k, q, bias_like, lse, no_one, no_one, mask, no_one, slopes, scale, yes, window},
       {examples.output({2, 1, 3, 5})},
       {{q, q, k, k, q, bad_like, lse, no_one, no_one, mask, no_one, slopes, scale, yes, window},
        {q, q, k, k, q, eights, lse, no_one, no_one, mask, no_one, slopes, scale, yes, window},
        {q, q, k, k, q, no_mask, lse, no_one, no_one, mask, no_one, slopes, scale, yes, window}}});

  Array* const starts = examples.output({2}, {}, Type::kInt32);  // places that the caches have
  starts->set(0, 2);
  starts->set(1, 0);
  const opdock_value new_k = examples.array({2, 3, 2, 8}), k_cache = examples.array({2, 7, 2, 8}),
                     v_cache = examples.array({2, 7, 2, 8}), start = starts->value(),
                     short_start = examples.array({1}, {}, Type::kInt32),
                     cos = examples.array({30, 4}), wide = examples.array({30, 5});
  examples.add(
      {"attention",
       "append_kv",
       {q, new_k, new_k, k_cache, v_cache, start, no_one, no_one, no_one, no_one, no},
       output(),
       {{flat, new_k, new_k, k_cache, v_cache, start, no_one, no_one, no_one, no_one, no},
        {q, k, new_k, k_cache, v_cache, start, no_one, no_one, no_one, no_one, no},
        {q, new_k, k, k_cache, v_cache, start, no_one, no_one, no_one, no_one, no},
        {q, new_k, new_k, half, v_cache, start, no_one, no_one, no_one, no_one, no},
        {q, new_k, new_k, k_cache, k, start, no_one, no_one, no_one, no_one, no},
        {q, new_k, new_k, k_cache, v_cache, short_start, no_one, no_one, no_one, no_one, no},
        {q, new_k, new_k, k_cache, v_cache, start, cos, no_one, no_one, no_one, no},
        {q, new_k, new_k, k_cache, v_cache, start, wide, wide, no_one, no_one, no},
        {q, new_k, new_k, k_cache, v_cache, start, no_one, no_one, scales, scales, no}}});
});

}  // namespace opdock_test
