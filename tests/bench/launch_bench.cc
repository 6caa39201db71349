// Measures a no-op with one launch through libopdock on the GPU, next to a bare cuLaunchKernel of
// an empty kernel on the same stream in the same context. Also measures the no-op without a launch,
// on the CPU. It needs a CUDA driver and OPDOCK_PLUGIN_PATH; without them its benchmarks print why
// they are skipped.
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "bare_launch.h"
#include "opdock/opdock.h"

namespace {

// As many launches as fit the driver's queue: a full queue makes a launch wait for the device.
constexpr int kBatch = 256;

opdock_runtime* runtime() {
  static opdock_runtime* made = [] {
    opdock_runtime* created = nullptr;
    opdock_runtime_create(nullptr, &created, nullptr, 0);
    return created;
  }();
  return made;
}

// Calls `name` with one tensor of 8 floats, in batches between which `between` runs untimed.
template <typename Between>
void call_op(benchmark::State& state, const char* name, opdock_device device, void* data,
             const Between& between) {
  char error[4096] = "";
  opdock_function* function = nullptr;
  int64_t shape[] = {8}, strides[] = {1};
  opdock_tensor tensor = {data, device, 1, {OPDOCK_DTYPE_FLOAT, 32, 1}, shape, strides, 0};
  opdock_value value = {OPDOCK_TAG_TENSOR, 0, {.tensor = &tensor}};
  opdock_status status = opdock_get_function(runtime(), name, &function, error, sizeof error);
  if (status == OPDOCK_OK) status = opdock_prepare(function, device, error, sizeof error);
  if (status != OPDOCK_OK) {
    state.SkipWithError(error);
    return;
  }
  int done = 0;
  for (auto _ : state) {
    status = opdock_invoke(function, nullptr, &value, 1, nullptr, 0, error, sizeof error);
    if (++done == kBatch) {
      state.PauseTiming();
      between();
      done = 0;
      state.ResumeTiming();
    }
  }
  if (status != OPDOCK_OK) state.SkipWithError(error);
}

void cpu_noop(benchmark::State& state) {
  static float data[8];
  call_op(state, "noop", {OPDOCK_CPU, 0}, data, [] {});
}

void bare_launch(benchmark::State& state) {
  bench::Cuda& driver = bench::cuda();
  if (!driver.problem.empty()) {
    state.SkipWithError(driver.problem.c_str());
    return;
  }
  int done = 0;
  for (auto _ : state) {
    driver.launch_empty();
    if (++done == kBatch) {
      state.PauseTiming();
      driver.synchronize();
      done = 0;
      state.ResumeTiming();
    }
  }
}

void gpu_op(benchmark::State& state, const char* name) {
  bench::Cuda& driver = bench::cuda();
  if (!driver.problem.empty()) {
    state.SkipWithError(driver.problem.c_str());
    return;
  }
  static uint64_t data = 0;
  if (data == 0) driver.allocate(&data, 64);
  call_op(state, name, {OPDOCK_CUDA, 0}, reinterpret_cast<void*>(data),
          [&] { driver.synchronize(); });
}

void gpu_noop(benchmark::State& state) {
  gpu_op(state, "noop");
}
void gpu_noop_launch(benchmark::State& state) {
  gpu_op(state, "noop_launch");
}

BENCHMARK(cpu_noop);
BENCHMARK(bare_launch);
BENCHMARK(gpu_noop);
BENCHMARK(gpu_noop_launch);

}  // namespace

BENCHMARK_MAIN();
