// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "examples.h"

namespace opdock_test {
namespace {

// Returns a tensor that the op writes.
Array* written(Examples& examples, std::vector<int64_t> shape, Type type, bool is_positive) {
  Array* const array = examples.output(std::move(shape), {}, type);
  array->fill(static_cast<uint64_t>(array->numel()) + is_positive);
  for (int64_t i = 0; is_positive && i < array->numel(); ++i)
    array->set(i, std::fabs(array->get(i)));
  return array;
}

// Adds a call of an op for tensors of three sizes, one of them empty, and calls that are not
// correct.
void add(Examples& examples, const char* op, Type type, bool has_masters) {
  const std::vector<std::vector<int64_t>> shapes = {{4, 6}, {0, 5}, {1030}};
  std::vector<Array*> all;
  std::vector<opdock_value> params, grads, means, squares, masters;
  const auto add_written = [&](std::vector<opdock_value>* list, const std::vector<int64_t>& shape,
                               Type element, bool is_positive) {
    all.push_back(written(examples, shape, element, is_positive));
    list->push_back(all.back()->value());
  };
  for (const std::vector<int64_t>& shape : shapes) {
    add_written(&params, shape, type, false);
    grads.push_back(examples.array(shape, {}, type));
    add_written(&means, shape, Type::kFloat32, false);
    add_written(&squares, shape, Type::kFloat32, true);
    if (has_masters) add_written(&masters, shape, Type::kFloat32, false);
  }
  all.push_back(written(examples, {1}, Type::kFloat32, true));
  all.back()->set(0, 3);
  const opdock_value scale = examples.array({1}), two = examples.array({2});
  std::vector<opdock_value> args = {examples.list(params),
                                    examples.list(grads),
                                    examples.list(means),
                                    examples.list(squares),
                                    all.back()->value(),
                                    number(0.01),
                                    number(0.9),
                                    number(0.999),
                                    number(1e-8),
                                    number(0.1),
                                    boolean(true),
                                    has_masters ? examples.list(masters) : none(),
                                    none(),
                                    scale,
                                    none()};
  std::vector<std::vector<opdock_value>> invalid_args;
  const auto break_it = [&](size_t param, opdock_value value) {
    invalid_args.push_back(args);
    invalid_args.back()[param] = value;
  };
  const auto replaced = [&](std::vector<opdock_value> list, opdock_value value) {
    list[0] = value;
    return examples.list(list);
  };
  for (size_t param = 1; param < 4; ++param) {
    const std::vector<opdock_value>& list = param == 1 ? grads : param == 2 ? means : squares;
    break_it(param, examples.list({list[0], list[1]}));
    break_it(param, replaced(list, examples.array({6, 4}, {}, type)));
    break_it(param, replaced(list, examples.array({4, 6}, {1, 4}, type)));
    break_it(param, replaced(list, examples.array({4, 6}, {}, Type::kInt32)));
    if (type == Type::kFloat32) break_it(param, replaced(list, examples.misaligned({4, 6})));
  }
  break_it(0, replaced(params, examples.array({4, 6}, {}, Type::kInt32)));
  break_it(0, replaced(params, examples.array({4, 6}, {8, 1}, type)));
  if (has_masters) {
    break_it(11, examples.list({masters[0]}));
    break_it(11, replaced(masters, examples.array({4, 6}, {}, type)));
  } else if (type == Type::kFloat32) {
    break_it(11, examples.list(means));
  }
  for (const size_t param : {4u, 12u, 13u, 14u}) {
    break_it(param, two);
    break_it(param, examples.array({1}, {}, Type::kFloat16));
    break_it(param, examples.misaligned({1}));
  }
  for (size_t param = 5; param < 10; ++param) break_it(param, number(-1));
  break_it(6, number(1));
  break_it(7, number(NAN));
  examples.add({.plugin = "adam",
                .op = op,
                .args = args,
                .outputs = {},
                .invalid_args = invalid_args,
                .written = all});
}

}  // namespace

static const ExamplesOf adam_examples([](Examples& examples) {
  for (const char* op : {"adamw_", "adam_"}) {
    add(examples, op, Type::kFloat32, false);
    add(examples, op, Type::kBFloat16, true);
    add(examples, op, Type::kFloat16, false);
  }
});

}  // namespace opdock_test
