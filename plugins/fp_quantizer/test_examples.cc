// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf fp_quantizer_examples([](Examples& examples) {
  const opdock_value x = examples.array({4, 24}, {}, Type::kFloat16),
                     floats = examples.array({4, 24}),
                     columns = examples.array({4, 24}, {1, 4}, Type::kFloat16),
                     odd = examples.array({4, 23}, {}, Type::kFloat16), four = integer(4),
                     three = integer(3), two = integer(2), no = boolean(false), yes = boolean(true),
                     generator = examples.generator();
  Array* const codes = examples.output({4, 28}, {}, Type::kUint8);
  examples.add({"fp_quantizer",
                "fp_quantize",
                {x, four, three, yes, generator},
                {codes},
                {{floats, four, three, no, generator},
                 {columns, four, three, no, generator},
                 {odd, three, two, no, generator},
                 {x, four, four, no, generator}}});
  // Rows of bytes whose scale is 1 or so.
  Array* const rows = examples.output({4, 28}, {}, Type::kUint8);
  for (int64_t i = 0; i < rows->numel(); ++i) {
    const int64_t place = i % 28;
    rows->set(i, place < 24   ? static_cast<double>(i * 37 % 256)
                 : place < 26 ? 0
                 : place < 27 ? 128
                              : 63);
  }
  const opdock_value q = rows->value(), none_of = examples.array({4, 4}, {}, Type::kUint8),
                     bytes = examples.array({4, 28}, {}, Type::kInt8),
                     across = examples.array({4, 28}, {1, 4}, Type::kUint8);
  examples.add({"fp_quantizer",
                "fp_dequantize",
                {q, four, three, none()},
                {examples.output({4, 24}, {}, Type::kBFloat16)},
                {{bytes, four, three, none()},
                 {across, four, three, none()},
                 {none_of, four, three, none()},
                 {q, two, two, none()}}});
  Array* const numbers = examples.output({3}, {}, Type::kInt32);
  for (int64_t i = 0; i < 3; ++i) numbers->set(i, static_cast<double>((i + 2) % 4));
  const opdock_value index = numbers->value(), square = examples.array({1, 3}, {}, Type::kInt32);
  examples.add({"fp_quantizer",
                "fp_selective_dequantize",
                {q, index, four, three, none()},
                {examples.output({3, 24}, {}, Type::kBFloat16)},
                {{bytes, index, four, three, none()},
                 {q, square, four, three, none()},
                 {q, x, four, three, none()},
                 {q, index, two, two, none()}}});
  const opdock_value weight = examples.array({24, 6}, {}, Type::kUint8),
                     scale = examples.array({12}), five = examples.array({5});
  examples.add({"fp_quantizer",
                "fp_matmul",
                {x, weight, scale, four, three},
                {examples.output({4, 6}, {}, Type::kFloat16)},
                {{floats, weight, scale, four, three},
                 {x, q, scale, four, three},
                 {x, weight, five, four, three},
                 {x, weight, scale, three, two}}});
});

}  // namespace opdock_test
