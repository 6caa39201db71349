// Measures the first use of one plugin when the machine's facts are known: a runtime over a folder
// with that plugin, its function, and opdock_prepare on the CPU. Each measurement uses a copy of
// the file that the process has not seen. The limit is 1 ms, with files in the page cache and no
// process spawned. Usage:
//   load_bench [--benchmark_…]
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "opdock/opdock.h"

namespace {

namespace fs = std::filesystem;

// Plugins stay loaded, so a fixed number of copies is made before the clock runs.
constexpr int kCopies = 64;

class Copies {
 public:
  Copies(const std::string& plugin) {
    std::string pattern = std::string(BENCH_FOLDER) + "/load.XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) return;
    path_ = pattern;
    for (int i = 0; i < kCopies; ++i) {
      fs::create_directory(folder(i));
      fs::copy_file(fs::path(BENCH_PLUGINS) / (plugin + ".so"), folder(i) / (plugin + ".so"));
    }
  }
  ~Copies() { fs::remove_all(path_); }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  fs::path folder(int i) const { return path_ / std::to_string(i); }

 private:
  fs::path path_;
};

opdock_status first_use(const std::string& folder, const char* op, opdock_runtime** runtime,
                        char* error, uint32_t size) {
  opdock_options options{};
  options.struct_size = sizeof options;
  options.plugin_path = folder.c_str();
  opdock_function* function = nullptr;
  opdock_status status = opdock_runtime_create(&options, runtime, error, size);
  if (status == OPDOCK_OK) status = opdock_get_function(*runtime, op, &function, error, size);
  if (status == OPDOCK_OK) status = opdock_prepare(function, {OPDOCK_CPU, 0}, error, size);
  return status;
}

void load_and_prepare(benchmark::State& state, const char* plugin, const char* op) {
  const Copies copies(plugin);
  char error[4096] = "";
  opdock_runtime* runtime = nullptr;
  int next = 0;
  // Loading the first copy determines the machine's facts.
  opdock_status status =
      first_use(copies.folder(next++).string(), op, &runtime, error, sizeof error);
  opdock_runtime_destroy(runtime);
  for (auto _ : state) {
    const std::string folder = copies.folder(next++).string();
    if (status == OPDOCK_OK) status = first_use(folder, op, &runtime, error, sizeof error);
    state.PauseTiming();
    opdock_runtime_destroy(runtime);
    runtime = nullptr;
    state.ResumeTiming();
  }
  if (status != OPDOCK_OK) state.SkipWithError(error);
}

BENCHMARK_CAPTURE(load_and_prepare, noop, "noop", "noop")
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(kCopies - 1);
BENCHMARK_CAPTURE(load_and_prepare, softmax_with_images, "softmax", "softmax")
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(kCopies - 1);

}  // namespace

BENCHMARK_MAIN();
