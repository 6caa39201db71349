// Measures how long it takes to find and check 1,000 plugins; the limit is 10 ms, with files in the
// page cache. Each plugin is a copy of one small plugin under a name and with a note of its own.
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "discover/catalog.h"

namespace {

namespace fs = std::filesystem;

constexpr int kPlugins = 1000;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Returns the folder, which the first call makes; it is removed at exit.
const std::string& plugin_folder() {
  static const struct Made {
    std::string path;
    Made() {
      std::string pattern = std::string(BENCH_FOLDER) + "/scan.XXXXXX";
      path = mkdtemp(pattern.data()) == nullptr ? "" : pattern;
      const std::string plugin = read_file(BENCH_PLUGIN);
      // The plugin's name in the note is replaced by one of the same length, so that all offsets
      // stay right.
      const size_t name = plugin.find("\"name\": \"bench_0000\"");
      if (name == std::string::npos) {
        std::fprintf(stderr, "the plugin's note does not say \"bench_0000\"\n");
        std::exit(1);
      }
      for (int i = 0; i < kPlugins; ++i) {
        char fresh[16];
        std::snprintf(fresh, sizeof fresh, "bench_%04d", i);
        std::string copy = plugin;
        copy.replace(name + 9, 10, fresh);
        std::ofstream(path + "/" + fresh + ".so", std::ios::binary) << copy;
      }
    }
    ~Made() { fs::remove_all(path); }
  } made;
  return made.path;
}

void scan_and_judge(benchmark::State& state, bool needs_trust) {
  const opdock::MachineFacts machine = opdock::probe_machine();
  opdock::SearchOptions options;
  (needs_trust ? options.package_path : options.plugin_path) = plugin_folder();
  options.has_plugin_path = !needs_trust;
  size_t usable = 0;
  for (auto _ : state) {
    const std::shared_ptr<const opdock::Catalog> catalog = opdock::discover(options, machine);
    usable = 0;
    for (const std::shared_ptr<const opdock::Candidate>& candidate : catalog->candidates()) {
      usable += candidate->verdict.state == opdock::State::kUsable;
    }
  }
  if (usable < kPlugins && !needs_trust) state.SkipWithError("not every plugin was usable");
  state.counters["plugins"] = kPlugins;
  state.counters["usable"] = static_cast<double>(usable);
}

BENCHMARK_CAPTURE(scan_and_judge, explicit_path, false)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(scan_and_judge, with_trust, true)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
