// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf quantizer_examples([](Examples& examples) {
  const auto all = [](std::vector<opdock_value> first, std::vector<opdock_value> rest) {
    first.insert(first.end(), rest.begin(), rest.end());
    return first;
  };
  const opdock_value x = examples.array({4, 6}), columns = examples.array({4, 6}, {1, 4}),
                     misaligned = examples.misaligned({4, 6}),
                     integers = examples.array({4, 6}, {}, Type::kInt32), yes = boolean(true),
                     no = boolean(false), one = integer(1), two = integer(2);
  // Returns the arguments of quantize_groups.
  const auto quantize = [&](opdock_value tensor, int64_t groups, int64_t bits,
                            opdock_value slices) {
    return std::vector<opdock_value>{tensor, integer(groups), integer(bits), no,
                                     yes,    slices,          one,           two};
  };
  examples.add({"quantizer",
                "quantize_groups",
                quantize(x, 4, 8, two),
                {examples.output({4, 6}, {}, Type::kInt8), examples.output({4, 2})},
                {quantize(columns, 4, 8, two), quantize(misaligned, 4, 8, two),
                 quantize(integers, 4, 8, two), quantize(x, 5, 8, one), quantize(x, 0, 8, one),
                 quantize(x, 8, 4, one), quantize(x, 4, 3, one), quantize(x, 4, 8, integer(3)),
                 quantize(x, 4, 8, integer(0)),
                 all({x, integer(4), integer(8)}, {yes, yes, one, one, one})}});
  const opdock_value q = examples.array({4, 6}, {}, Type::kInt8), params = examples.array({4, 2}),
                     odd = examples.array({5, 2}), wide = examples.array({4, 3}),
                     across = examples.array({4, 2}, {1, 4});
  const opdock_value eight = integer(8);
  examples.add({"quantizer",
                "dequantize_groups",
                {q, params, eight, no, none()},
                {examples.output({4, 6})},
                {{x, params, eight, no, none()},
                 {q, odd, eight, no, none()},
                 {q, wide, eight, no, none()},
                 {q, across, eight, no, none()},
                 {q, params, two, no, none()},
                 {q, examples.array({4, 1}), eight, yes, none()}}});
  examples.add({"quantizer",
                "sum_quantized",
                {q, params, two, two, eight},
                {examples.output({4, 3}, {}, Type::kInt8), examples.output({2, 2})},
                {{x, params, two, two, eight},
                 {q, odd, two, two, eight},
                 {q, across, two, two, eight},
                 {q, params, integer(4), two, eight},
                 {q, params, two, integer(5), eight},
                 {q, params, two, integer(0), eight},
                 {q, params, two, two, integer(16)}}});
  Array* const numbers = examples.output({4, 6});
  numbers->fill(3);
  const opdock_value generator = examples.generator();
  const auto fake = [&](opdock_value tensor, int64_t groups, int64_t bits) {
    return std::vector<opdock_value>{tensor, integer(groups), integer(bits), no, yes, generator};
  };
  examples.add({"quantizer",
                "fake_quantize_",
                fake(numbers->value(), 4, 8),
                {},
                {fake(columns, 4, 8), fake(misaligned, 4, 8), fake(integers, 4, 8),
                 fake(numbers->value(), 5, 8), fake(numbers->value(), 4, 3)},
                true,
                false,
                {numbers}});
  const opdock_value scale = examples.array({4}, {}, Type::kFloat16),
                     least = examples.array({4}, {}, Type::kFloat16);
  examples.add({"quantizer",
                "dequantize_unsigned",
                {q, scale, least, eight},
                {examples.output({4, 6}, {}, Type::kFloat16)},
                {{x, scale, least, eight},
                 {q, examples.array({4}), least, eight},
                 {q, scale, examples.array({5}, {}, Type::kFloat16), eight},
                 {q, examples.array({5}, {}, Type::kFloat16),
                  examples.array({5}, {}, Type::kFloat16), eight},
                 {q, scale, least, two}}});
});

}  // namespace opdock_test
