// SPDX-License-Identifier: Apache-2.0
#include "fused/device_kernels.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "call/invocation.h"
#include "formula/device_launch.h"
#include "formula/device_source.h"
#include "fused/ahead.h"
#include "fused/device_traits.h"
#include "opdock/types.hpp"
#include "schema/dtype.h"

namespace opdock {
namespace {

constexpr const char* kKernel = "opdock::formula::kernel";

std::string key_of(const formula::DeviceShape& shape, opdock_device device) {
  return to_text(device) + " " + std::to_string(shape.dims) + (shape.is_wide ? "w" : "") +
         (shape.is_even ? "e" : "") + (shape.is_block ? "b" : "") + std::to_string(shape.held) +
         (shape.is_full ? "f" : "") + std::to_string(shape.threads) + "c" +
         std::to_string(shape.cluster) + "r" + std::to_string(shape.repeated) + "t" +
         std::to_string(shape.transposed);
}

void check(const Status& status) {
  if (!status.ok()) throw Error(status.status, status.text);
}

// Returns the kernel that the op's plugin brings; NULL if it brings none of this name.
opdock_kernel* kernel_of_plugin(Invocation* in, const std::string& name, bool is_capturing) {
  Kernels* const kernels = in->target->kernels;
  if (kernels == nullptr) return nullptr;
  opdock_kernel* found = nullptr;
  const Status status = kernels->find(name.c_str(), &found, !is_capturing);
  if (status.status == OPDOCK_NOT_FOUND) return nullptr;
  check(status);
  if (found != nullptr) return found;
  // The plugin has source only, or no image for this GPU.
  check(in->function.resolver()->make_kernels(in->function, in->target, name.c_str()));
  check(kernels->find(name.c_str(), &found));
  return found;
}

}  // namespace

FusedKernels::FusedKernels(formula::Graph graph) : graph_(formula::with_plain_reductions(graph)) {}
FusedKernels::~FusedKernels() = default;

opdock_kernel* FusedKernels::known(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = kernels_.find(key);
  return found == kernels_.end() ? nullptr : found->second;
}

opdock_kernel* FusedKernels::keep(const std::string& key, opdock_kernel* made) {
  const std::lock_guard lock(mutex_);
  return kernels_.emplace(key, made).first->second;
}

opdock_kernel* FusedKernels::make(Invocation* in, const std::string& key, std::string source,
                                  const char* name) {
  bool is_capturing = false;
  if (in->is_capturing(&is_capturing) != OPDOCK_OK)
    throw Error(OPDOCK_DEVICE_ERROR, "whether the stream is being captured cannot be asked");
  const std::string& op = in->function.schema().name;
  if (opdock_kernel* found = kernel_of_plugin(in, ahead_name(op, source), is_capturing))
    return keep(key, found);
  if (is_capturing)
    throw Error(OPDOCK_UNSUPPORTED,
                "found the stream being captured before the formula's kernel for these dtypes and "
                "this layout exists, wanted one call before the capture");
  const ForkAwareGuard guard(&making_);
  if (!guard)
    throw Error(OPDOCK_INVALID_ARGUMENT, to_text(deadlock_reason("a formula's kernel to be made")));
  if (opdock_kernel* found = known(key)) return found;
  opdock_kernel* found = nullptr;
  check(in->function.resolver()->compile_kernel(in->target->device, op, std::move(source), name,
                                                &found));
  return keep(key, found);
}

PreparedLaunch FusedKernels::prepare(Invocation* in, const formula::Space& space,
                                     void* const* inputs, void* const* results,
                                     const formula::Value* scalars) {
  const opdock_device_facts& facts = *in->target->facts;
  const formula::DeviceLaunch plan = formula::plan_launch(
      graph_, space, device_traits(facts), formula::launch_is_even(graph_, space, inputs, results));
  const std::string key = key_of(plan.shape, in->target->device);
  PreparedLaunch prepared;
  prepared.words = formula::launch_parameters(graph_, space, inputs, results, scalars);
  prepared.kernel = known(key);
  if (prepared.kernel == nullptr)
    prepared.kernel = make(in, key, formula::device_source(graph_, plan.shape), kKernel);
  prepared.how.struct_size = sizeof prepared.how;
  for (size_t i = 0; i < 3; ++i) {
    prepared.how.grid[i] = plan.grid[i];
    prepared.how.block[i] = 1;
  }
  prepared.how.block[0] = plan.threads;
  if (plan.shape.cluster > 1) {
    prepared.how.cluster[0] = static_cast<uint32_t>(plan.shape.cluster);
    prepared.how.cluster[1] = prepared.how.cluster[2] = 1;
  }
  prepared.how.flags = launch_flags(facts, plan);
  return prepared;
}

opdock_status FusedKernels::launch(Invocation* in, const PreparedLaunch& prepared,
                                   void* const* inputs, void* const* results,
                                   const formula::Value* scalars) const {
  // Copies, since other calls of this thread may replace what is prepared.
  std::array<uint64_t, formula::kMaxParameter / sizeof(uint64_t)> words;
  const size_t count = prepared.words.size();
  std::copy_n(prepared.words.data(), count, words.data());
  const size_t num_inputs = graph_.inputs().size(), num_results = graph_.results().size();
  for (size_t i = 0; i < num_inputs; ++i) words[i] = reinterpret_cast<uintptr_t>(inputs[i]);
  for (size_t i = 0; i < num_results; ++i)
    words[num_inputs + i] = reinterpret_cast<uintptr_t>(results[i]);
  std::array<void*, 1 + formula::kMaxScalars> args;
  const size_t numbers = graph_.scalars().size();
  args[0] = words.data();
  for (size_t i = 0; i < numbers; ++i) {
    uint64_t& word = words[count - numbers + i];
    word = formula::scalar_word(graph_.scalars()[i].type, scalars[i]);
    args[1 + i] = &word;
  }
  opdock_launch how = prepared.how;
  how.args = args.data();
  how.num_args = static_cast<uint32_t>(1 + numbers);
  return in->call.host->launch(&in->call, prepared.kernel, &how);
}

namespace {

// words: the kernel's parameter by value, behind which its other arguments begin, one a word.
opdock_status launch_kernel(Invocation* in, opdock_kernel* kernel,
                            const std::array<uint32_t, 3>& grid, uint32_t threads,
                            std::vector<uint64_t>* words, size_t others) {
  std::vector<void*> args = {words->data()};
  for (size_t i = 0; i < others; ++i) args.push_back(&(*words)[words->size() - others + i]);
  opdock_launch launch{};
  launch.struct_size = sizeof launch;
  for (size_t i = 0; i < 3; ++i) {
    launch.grid[i] = grid[i];
    launch.block[i] = 1;
  }
  launch.block[0] = threads;
  launch.args = args.data();
  launch.num_args = static_cast<uint32_t>(args.size());
  return in->call.host->launch(&in->call, kernel, &launch);
}

}  // namespace

int64_t FusedKernels::partial_bytes(const formula::Space& space) const {
  if (!graph_.has_sums() || space.rows == 0) return 0;
  const formula::DeviceLaunch launch = formula::plan_launch(graph_, space, {}, false);
  return formula::places_of_partial_sums(graph_, space, launch).back();
}

opdock_status FusedKernels::add_sums(Invocation* in, const formula::Space& space,
                                     const formula::DeviceLaunch& first, void* const* results,
                                     void* workspace) {
  const std::string key = to_text(in->target->device) + " sums";
  opdock_kernel* kernel = known(key);
  if (kernel == nullptr)
    kernel = make(in, key, formula::device_sums_source(graph_), "opdock::formula::sums");
  formula::SumsLaunch plan = formula::plan_sums(graph_, space, first, workspace, results);
  return launch_kernel(in, kernel, plan.grid, plan.threads, &plan.words, 0);
}

opdock_status FusedKernels::launch_with_sums(Invocation* in, const formula::Space& space,
                                             void* const* inputs, void* const* results,
                                             const formula::Value* scalars, void* workspace) {
  if (space.rows == 0 || (space.columns == 0 && !graph_.has_reductions()))
    return add_sums(in, space, {}, results, workspace);
  const formula::DeviceLaunch plan =
      formula::plan_launch(graph_, space, device_traits(*in->target->facts),
                           formula::launch_is_even(graph_, space, inputs, results));
  const std::string key = key_of(plan.shape, in->target->device);
  opdock_kernel* kernel = known(key);
  if (kernel == nullptr)
    kernel = make(in, key, formula::device_source(graph_, plan.shape), kKernel);
  std::vector<void*> out(results, results + graph_.results().size());
  const std::vector<int64_t> places = formula::places_of_partial_sums(graph_, space, plan);
  for (size_t i = 0; i < out.size(); ++i)
    if (formula::is_sum(graph_.output(i))) out[i] = static_cast<char*>(workspace) + places[i];
  std::vector<uint64_t> words =
      formula::launch_parameters(graph_, space, inputs, out.data(), scalars, plan);
  const opdock_status done =
      launch_kernel(in, kernel, plan.grid, plan.threads, &words, graph_.scalars().size() + 2);
  return done == OPDOCK_OK ? add_sums(in, space, plan, results, workspace) : done;
}

}  // namespace opdock
