// Measures the cost of the host's checks of a call: ops that do nothing, with one output, with long
// lists of tensors that they write, and with rules about their tensors.
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "../unit/call/support.h"

namespace {

using namespace opdock::testing_support;
using A = Arguments;

void require(opdock_status status, const char* error) {
  if (status == OPDOCK_OK) return;
  std::fprintf(stderr, "checks_bench: %s\n", error);
  std::exit(1);
}

// Arguments of an optimizer's step: four lists, three of which are written.
struct Step {
  // Makes tensors of `numel` elements. The structures are contiguous, as a binding makes them for a
  // call; their data lies in no particular order.
  explicit Step(size_t count, int64_t numel = 64) : f(op()), memory(4 * count) {
    for (std::vector<float>& one : memory) one.resize(static_cast<size_t>(numel));
    std::shuffle(memory.begin(), memory.end(), std::mt19937(1));
    for (size_t i = 0; i < 4; ++i) {
      std::vector<opdock_value> list;
      for (size_t k = 0; k < count; ++k) {
        list.push_back(A::value(a.tensor({numel}, kF32, {1}, memory[i * count + k].data())));
      }
      args.push_back(a.list(std::move(list)));
    }
  }
  static const opdock_op* op() {
    static const opdock_op made = make_op(
        "step(Tensor(a!)[] params, Tensor(b!)[] means, Tensor(c!)[] squares, Tensor[] gradients) "
        "-> ()");
    return &made;
  }
  A a;
  TestFunction f;
  std::vector<std::vector<float>> memory;
  std::vector<opdock_value> args;
};

void invoke_lists(benchmark::State& state) {
  Step step(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    require(opdock_invoke(&step.f.function, nullptr, step.args.data(), 4, nullptr, 0, step.f.error,
                          sizeof step.f.error),
            step.f.error);
  }
}
BENCHMARK(invoke_lists)->Arg(4)->Arg(100)->Arg(1000);

// An op over rows whose tensors the host checks by rules, and the same op without rules.
const opdock_op* rows_op(bool has_rules) {
  static const char* const rules[] = {"rows x", "like up x", "rows up", "broadcast bias",
                                      "in-place x"};
  static const char* const shapes[] = {"like x"};
  static const auto make = [](uint32_t count) {
    opdock_op op = make_op("norm(Tensor x, Tensor up, Tensor bias) -> Tensor", plan_like,
                           run_nothing, nullptr, OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_IN_PLACE);
    op.num_shape_rules = 1;
    op.shape_rules = shapes;
    op.num_tensor_rules = count;
    op.tensor_rules = rules;
    return op;
  };
  static const opdock_op with = make(std::size(rules)), without = make(0);
  return has_rules ? &with : &without;
}

void plan_and_run_rows(benchmark::State& state) {
  A a;
  TestFunction f(rows_op(state.range(0) != 0));
  const opdock_value args[] = {A::value(a.tensor({8, 64})), A::value(a.tensor({8, 64})),
                               A::value(a.tensor({64}))};
  opdock_value result = A::value(a.tensor({8, 64}));
  opdock_output output[1];
  opdock_plan plan{};
  plan.struct_size = sizeof plan;
  plan.outputs = output;
  plan.room = 1;
  for (auto _ : state) {
    require(opdock_plan_call(&f.function, nullptr, args, 3, &plan, f.error, sizeof f.error),
            f.error);
    require(opdock_run_planned(&f.function, nullptr, &plan, args, 3, &result, 1, f.error,
                               sizeof f.error),
            f.error);
  }
}
BENCHMARK(plan_and_run_rows)->Arg(0)->Arg(1);

void plan_and_run_lists(benchmark::State& state) {
  Step step(static_cast<size_t>(state.range(0)));
  opdock_plan plan{};
  plan.struct_size = sizeof plan;
  for (auto _ : state) {
    require(opdock_plan_call(&step.f.function, nullptr, step.args.data(), 4, &plan, step.f.error,
                             sizeof step.f.error),
            step.f.error);
    require(opdock_run_planned(&step.f.function, nullptr, &plan, step.args.data(), 4, nullptr, 0,
                               step.f.error, sizeof step.f.error),
            step.f.error);
  }
}
BENCHMARK(plan_and_run_lists)->Arg(1000);

// Uses columns of one matrix, half of which are written: all extents overlap.
void invoke_columns(benchmark::State& state) {
  static const opdock_op op = make_op("columns(Tensor(a!)[] written, Tensor[] read) -> ()");
  const int64_t count = state.range(0);
  TestFunction f(&op);
  A a;
  std::vector<float> matrix(static_cast<size_t>(16 * count));
  std::vector<opdock_value> lists[2];
  for (int64_t c = 0; c < count; ++c) {
    lists[c % 2].push_back(A::value(a.tensor({16}, kF32, {count}, matrix.data() + c)));
  }
  const opdock_value args[] = {a.list(lists[0]), a.list(lists[1])};
  for (auto _ : state)
    require(opdock_invoke(&f.function, nullptr, args, 2, nullptr, 0, f.error, sizeof f.error),
            f.error);
}
BENCHMARK(invoke_columns)->Arg(1000);

// Calls an op with one tensor in and one out, the usual case.
void invoke_one_output(benchmark::State& state) {
  static const opdock_op op = make_op("one(Tensor x) -> Tensor", plan_like);
  TestFunction f(&op);
  A a;
  const opdock_value x = A::value(a.tensor({8, 16}));
  opdock_value results[] = {A::value(a.tensor({8, 16}))};
  for (auto _ : state)
    require(opdock_invoke(&f.function, nullptr, &x, 1, results, 1, f.error, sizeof f.error),
            f.error);
}
BENCHMARK(invoke_one_output);

// Calls an op that writes its argument in place.
void invoke_written(benchmark::State& state) {
  static const opdock_op op = make_op("rope_(Tensor(a!) q, Tensor k) -> Tensor(a!)");
  TestFunction f(&op);
  A a;
  const opdock_value args[] = {A::value(a.tensor({8, 16})), A::value(a.tensor({8, 16}))};
  opdock_value result{};
  for (auto _ : state)
    require(opdock_invoke(&f.function, nullptr, args, 2, &result, 1, f.error, sizeof f.error),
            f.error);
}
BENCHMARK(invoke_written);

}  // namespace

BENCHMARK_MAIN();
