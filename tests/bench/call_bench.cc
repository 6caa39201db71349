// Measures the cost of a call in C++, through the ABI and directly, with no work in the op. Usage:
//   call_bench [--benchmark_…] : OPDOCK_BENCH_PLUGINS names the folder with the noop plugin.
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>

#include "opdock/opdock.h"

namespace {

struct Noop {
  Noop() {
    options.struct_size = sizeof options;
    options.plugin_path = std::getenv("OPDOCK_BENCH_PLUGINS");
    if (options.plugin_path == nullptr) options.plugin_path = BENCH_PLUGINS;
    check(opdock_runtime_create(&options, &runtime, error, sizeof error));
    check(opdock_get_function(runtime, "noop", &function, error, sizeof error));
    x = {data, {OPDOCK_CPU, 0}, 1, {OPDOCK_DTYPE_FLOAT, 32, 1}, shape, strides, 0};
    argument.tag = OPDOCK_TAG_TENSOR;
    argument.as.tensor = &x;
    plan.struct_size = sizeof plan;
  }
  ~Noop() { opdock_runtime_destroy(runtime); }
  void check(opdock_status status) {
    if (status == OPDOCK_OK) return;
    std::fprintf(stderr, "call_bench: %s\n", error);
    std::exit(1);
  }

  opdock_options options{};
  opdock_runtime* runtime = nullptr;
  opdock_function* function = nullptr;
  float data[8] = {};
  int64_t shape[1] = {8}, strides[1] = {1};
  opdock_tensor x{};
  opdock_value argument{};
  opdock_plan plan{};
  char error[1024] = "";
};

[[gnu::noinline]] opdock_status direct(const opdock_tensor* x) {
  benchmark::DoNotOptimize(x);
  return OPDOCK_OK;
}

void direct_call(benchmark::State& state) {
  Noop noop;
  for (auto _ : state) benchmark::DoNotOptimize(direct(&noop.x));
}
BENCHMARK(direct_call);

void plan_and_run(benchmark::State& state) {
  Noop noop;
  for (auto _ : state) {
    noop.check(opdock_plan_call(noop.function, nullptr, &noop.argument, 1, &noop.plan, noop.error,
                                sizeof noop.error));
    noop.check(opdock_run_planned(noop.function, nullptr, &noop.plan, &noop.argument, 1, nullptr, 0,
                                  noop.error, sizeof noop.error));
  }
}
BENCHMARK(plan_and_run);

void invoke(benchmark::State& state) {
  Noop noop;
  for (auto _ : state) {
    noop.check(opdock_invoke(noop.function, nullptr, &noop.argument, 1, nullptr, 0, noop.error,
                             sizeof noop.error));
  }
}
BENCHMARK(invoke);

void bind_by_name(benchmark::State& state) {
  Noop noop;
  const char* name = "x";
  opdock_value bound;
  for (auto _ : state) {
    noop.check(opdock_bind(noop.function, nullptr, 0, &name, &noop.argument, 1, &bound, noop.error,
                           sizeof noop.error));
  }
}
BENCHMARK(bind_by_name);

}  // namespace

BENCHMARK_MAIN();
