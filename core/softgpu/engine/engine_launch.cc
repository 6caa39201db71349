// Executes a launch by distributing its blocks to several threads.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "library.h"
#include "runner.h"
#include "settings.h"

namespace softgpu {
namespace {

// With fewer threads in the grid, starting another worker is not worth it.
constexpr uint64_t kThreadsForHelp = 4096;

std::mutex runners_mutex;

std::vector<std::unique_ptr<Runner>>& idle_runners() {
  static auto* const all = new std::vector<std::unique_ptr<Runner>>;
  return *all;
}

std::unique_ptr<Runner> take_runner() {
  const std::lock_guard<std::mutex> lock(runners_mutex);
  if (idle_runners().empty()) return std::make_unique<Runner>();
  std::unique_ptr<Runner> runner = std::move(idle_runners().back());
  idle_runners().pop_back();
  return runner;
}

void keep_runner(std::unique_ptr<Runner> runner) {
  const std::lock_guard<std::mutex> lock(runners_mutex);
  idle_runners().push_back(std::move(runner));
}

// Returns why a launch cannot be executed at all; empty if it can.
std::string problem_of(const Launch& launch) {
  if (!launch.kernel || !launch.kernel->library) return "has no kernel";
  uint64_t blocks = 1, threads = 1, cluster = 1;
  for (int i = 0; i < 3; ++i) {
    blocks *= launch.grid[i];
    threads *= launch.block[i];
    cluster *= launch.cluster[i];
    if (launch.cluster[i] && launch.grid[i] % launch.cluster[i] != 0)
      return "has a grid that is not a multiple of its clusters";
  }
  if (blocks == 0 || threads == 0 || cluster == 0) return "has an empty grid, block or cluster";
  if (threads > launch.kernel->max_threads)
    return "has " + std::to_string(threads) + " threads a block, of at most " +
           std::to_string(launch.kernel->max_threads);
  if (cluster > 16) return "has clusters of more than 16 blocks";
  if (blocks >= uint64_t{1} << 31) return "has more blocks than the software GPU counts";
  const std::vector<uint32_t>& sizes = launch.kernel->param_sizes;
  if (launch.args.size() != sizes.size())
    return "has " + std::to_string(launch.args.size()) + " arguments for " +
           std::to_string(sizes.size()) + " parameters";
  for (size_t i = 0; i < sizes.size(); ++i)
    if (launch.args[i].size() != sizes[i])
      return "has " + std::to_string(launch.args[i].size()) + " bytes for parameter " +
             std::to_string(i) + ", which has " + std::to_string(sizes[i]);
  return "";
}

// Returns the memory that the kernel gets only by pointers to const.
std::vector<ReadOnly> constant_memory(const KernelEntry& entry, const Launch& launch) {
  std::set<uintptr_t> written;  // begins of allocations
  std::vector<ReadOnly> constant;
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const ParamKind kind = entry.param_kinds[i];
    if (kind == ParamKind::kPointers) return {};  // their targets are unknown
    const std::vector<uint8_t>& bytes = launch.args[i];
    for (size_t at = 0; at + sizeof(uintptr_t) <= bytes.size(); at += sizeof(uintptr_t)) {
      uintptr_t address = 0;
      Allocation allocation;
      std::memcpy(&address, bytes.data() + at, sizeof(address));
      if (!find_allocation(address, 0, &allocation)) continue;
      if (kind != ParamKind::kConst) written.insert(allocation.begin);
      if (kind == ParamKind::kConst)
        constant.push_back({allocation.begin, allocation.bytes,
                            "what the kernel has by pointers to const alone (parameter " +
                                std::to_string(i) + ")"});
    }
  }
  std::erase_if(constant, [&](const ReadOnly& range) { return written.contains(range.begin); });
  return constant;
}

}  // namespace

bool execute(const Operation& operation, const Launch& launch) {
  const std::string problem = problem_of(launch);
  if (!problem.empty()) {
    report("softgpu: " + operation.what + ": the launch " + problem + "\n", Fault::kOther);
    return false;
  }
  LaunchState state;
  state.operation = &operation;
  state.launch = &launch;
  state.library = launch.kernel->library.get();
  state.read_only = operation.read_only;
  for (unsigned i = 0; i < state.library->module().kernel_count; ++i) {
    const KernelEntry& entry = state.library->module().kernels[i];
    if (launch.kernel->expression != entry.expression) continue;
    state.run = entry.run;
    for (ReadOnly& range : constant_memory(entry, launch))
      state.read_only.push_back(std::move(range));
  }
  for (const std::vector<uint8_t>& arg : launch.args)
    state.params.push_back(const_cast<uint8_t*>(arg.data()));
  const uint64_t blocks = uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  const uint64_t size = uint64_t{launch.cluster[0]} * launch.cluster[1] * launch.cluster[2];
  state.clusters = blocks / size;
  state.record = record_operation(operation, blocks);
  state.record->library = launch.kernel->library;
  std::copy_n(launch.grid, 3, state.record->grid);
  std::copy_n(launch.block, 3, state.record->threads);
  const Settings settings = current_settings();
  state.counting = settings.counters;
  state.steps = settings.steps;
  state.counters.kernel = launch.kernel->expression;
  state.seed = mix(settings.seed, operation.number ? mix(operation.stream, operation.number)
                                                   : next_launch_number());
  state.order.resize(state.clusters);
  std::iota(state.order.begin(), state.order.end(), 0u);
  Random(state.seed).shuffle(state.order.data(), state.order.size());

  std::mutex mutex;
  Finding finding;
  std::string text;
  const auto work = [&] {
    std::unique_ptr<Runner> runner = take_runner();
    for (uint64_t i; !state.stop && (i = state.next++) < state.clusters;) {
      if (runner->run_cluster(&state, state.order[i])) continue;
      const std::lock_guard<std::mutex> lock(mutex);
      state.stop = true;
      if (finding.kind != FindingKind::kNone) break;
      finding = runner->finding();
      text = runner->describe();
    }
    keep_runner(std::move(runner));
  };
  const uint64_t threads = blocks * launch.block[0] * launch.block[1] * launch.block[2];
  unsigned workers = settings.workers ? settings.workers : std::thread::hardware_concurrency();
  if (threads < kThreadsForHelp) workers = 1;
  workers = static_cast<unsigned>(std::clamp<uint64_t>(state.clusters, 1, std::max(workers, 1u)));
  state.workers = workers;
  std::vector<std::thread> helpers;
  for (unsigned i = 1; i < workers; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();

  if (state.counting) {
    state.counters.launches = 1;
    state.counters.blocks = blocks;
    state.counters.threads = threads;
    publish_counters(state.counters);
  }
  if (finding.kind == FindingKind::kNone) return true;
  report(text, fault_of(finding));
  return false;
}

}  // namespace softgpu
