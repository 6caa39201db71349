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

// The arguments of an op's call besides params and grads.
struct Optimizer {
  const char* op;
  size_t states;                // lists of averages and sums
  bool has_step;                // the states are followed by the number of steps
  std::vector<double> numbers;  // then come numbers, none of which may be negative,
  std::vector<size_t> betas;    // those of them that must be below 1,
  size_t flags;                 // and bools; all have masters, lr_tensor, grad_scale and found_inf
};

// Adds a call of an op for tensors of three sizes, one of them empty, and calls that are not
// correct.
void add(Examples& examples, const Optimizer& optimizer, Type type, bool has_masters) {
  const std::vector<std::vector<int64_t>> shapes = {{4, 6}, {0, 5}, {1030}};
  std::vector<Array*> all;
  std::vector<opdock_value> params, grads, masters;
  std::vector<std::vector<opdock_value>> states(optimizer.states);
  const auto add_written = [&](std::vector<opdock_value>* list, const std::vector<int64_t>& shape,
                               Type element, bool is_positive) {
    all.push_back(written(examples, shape, element, is_positive));
    list->push_back(all.back()->value());
  };
  for (const std::vector<int64_t>& shape : shapes) {
    add_written(&params, shape, type, false);
    grads.push_back(examples.array(shape, {}, type));
    for (std::vector<opdock_value>& state : states)
      add_written(&state, shape, Type::kFloat32, &state == &states.back());
    if (has_masters) add_written(&masters, shape, Type::kFloat32, false);
  }
  std::vector<opdock_value> args = {examples.list(params), examples.list(grads)};
  for (const std::vector<opdock_value>& state : states) args.push_back(examples.list(state));
  std::vector<size_t> single;  // parameters that are tensors of one number
  if (optimizer.has_step) {
    single.push_back(args.size());
    all.push_back(written(examples, {1}, Type::kFloat32, true));
    all.back()->set(0, 3);
    args.push_back(all.back()->value());
  }
  const size_t first_number = args.size();
  for (const double one : optimizer.numbers) args.push_back(number(one));
  for (size_t i = 0; i < optimizer.flags; ++i) args.push_back(boolean(true));
  const size_t at_masters = args.size();
  args.push_back(has_masters ? examples.list(masters) : none());
  for (const opdock_value& value : {none(), examples.array({1}), none()}) {
    single.push_back(args.size());
    args.push_back(value);
  }

  std::vector<std::vector<opdock_value>> invalid_args;
  const auto break_it = [&](size_t param, opdock_value value) {
    invalid_args.push_back(args);
    invalid_args.back()[param] = value;
  };
  const auto replaced = [&](std::vector<opdock_value> list, opdock_value value) {
    list[0] = value;
    return examples.list(list);
  };
  for (size_t param = 1; param < 2 + states.size(); ++param) {
    const std::vector<opdock_value>& list = param == 1 ? grads : states[param - 2];
    break_it(param, examples.list({list[0], list[1]}));
    break_it(param, replaced(list, examples.array({6, 4}, {}, type)));
    break_it(param, replaced(list, examples.array({4, 6}, {1, 4}, type)));
    break_it(param, replaced(list, examples.array({4, 6}, {}, Type::kInt32)));
    if (type == Type::kFloat32) break_it(param, replaced(list, examples.misaligned({4, 6})));
  }
  break_it(0, replaced(params, examples.array({4, 6}, {}, Type::kInt32)));
  break_it(0, replaced(params, examples.array({4, 6}, {8, 1}, type)));
  if (has_masters) {
    break_it(at_masters, examples.list({masters[0]}));
    break_it(at_masters, replaced(masters, examples.array({4, 6}, {}, type)));
  } else if (type == Type::kFloat32) {
    break_it(at_masters, examples.list(states[0]));
  }
  for (const size_t param : single) {
    break_it(param, examples.array({2}));
    break_it(param, examples.array({1}, {}, Type::kFloat16));
    break_it(param, examples.misaligned({1}));
  }
  for (size_t i = 0; i < optimizer.numbers.size(); ++i) break_it(first_number + i, number(-1));
  for (const size_t beta : optimizer.betas) break_it(first_number + beta, number(1));
  std::vector<Array*> outputs;
  const bool has_ratios = std::string(optimizer.op) == "lamb_";  // of norms, which are sums
  if (has_ratios) outputs.push_back(examples.output({static_cast<int64_t>(shapes.size())}));
  examples.add({.plugin = "adam",
                .op = optimizer.op,
                .args = args,
                .outputs = outputs,
                .invalid_args = invalid_args,
                .written = all,
                .writes_by_sums = has_ratios});
}

}  // namespace

static const ExamplesOf adam_examples([](Examples& examples) {
  const std::vector<double> adam = {0.01, 0.9, 0.999, 1e-8, 0.1};
  for (const Optimizer& optimizer :
       {Optimizer{"adamw_", 2, true, adam, {1, 2}, 1}, Optimizer{"adam_", 2, true, adam, {1, 2}, 1},
        Optimizer{"adagrad_", 1, false, {0.01, 1e-10, 0.1}, {}, 1},
        Optimizer{"lamb_", 2, true, {0.01, 0.9, 0.999, 1e-8, 0.1, 10, 0.01}, {1, 2}, 3},
        Optimizer{"lion_", 1, false, {0.01, 0.9, 0.99, 0.1}, {1, 2}, 1}}) {
    add(examples, optimizer, Type::kFloat32, false);
    add(examples, optimizer, Type::kBFloat16, true);
    add(examples, optimizer, Type::kFloat16, false);
  }
});

}  // namespace opdock_test
