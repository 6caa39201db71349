// SPDX-License-Identifier: Apache-2.0
#include "fused/device_kernels.h"

#include <mutex>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "call/invocation.h"
#include "formula/device_launch.h"
#include "formula/device_source.h"
#include "opdock/types.hpp"
#include "schema/dtype.h"

namespace opdock {
namespace {

std::string key_of(const formula::DeviceShape& shape, opdock_device device) {
  return to_text(device) + " " + std::to_string(shape.dims) + (shape.is_wide ? "w" : "") +
         (shape.is_even ? "e" : "") + (shape.is_block ? "b" : "") + std::to_string(shape.held) +
         (shape.is_full ? "f" : "") + std::to_string(shape.threads) + "r" +
         std::to_string(shape.repeated) + "t" + std::to_string(shape.transposed);
}

void check(const Status& status) {
  if (!status.ok()) throw Error(status.status, status.text);
}

}  // namespace

FusedKernels::FusedKernels(formula::Graph graph) : graph_(formula::with_plain_reductions(graph)) {}
FusedKernels::~FusedKernels() = default;

opdock_kernel* FusedKernels::known(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = kernels_.find(key);
  return found == kernels_.end() ? nullptr : found->second;
}

opdock_kernel* FusedKernels::make(Invocation* in, const std::string& key,
                                  const formula::DeviceShape& shape) {
  bool is_capturing = false;
  if (in->is_capturing(&is_capturing) != OPDOCK_OK)
    throw Error(OPDOCK_DEVICE_ERROR, "whether the stream is being captured cannot be asked");
  if (is_capturing)
    throw Error(OPDOCK_UNSUPPORTED,
                "found the stream being captured before the formula's kernel for these dtypes and "
                "this layout exists, wanted one call before the capture");
  const ForkAwareGuard guard(&making_);
  if (!guard)
    throw Error(OPDOCK_INVALID_ARGUMENT, to_text(deadlock_reason("a formula's kernel to be made")));
  if (opdock_kernel* found = known(key)) return found;
  opdock_kernel* found = nullptr;
  check(in->function.resolver()->compile_kernel(in->target->device, in->function.schema().name,
                                                formula::device_source(graph_, shape),
                                                "opdock::formula::kernel", &found));
  const std::lock_guard lock(mutex_);
  return kernels_.emplace(key, found).first->second;
}

opdock_status FusedKernels::launch(Invocation* in, const formula::Space& space, void* const* inputs,
                                   void* const* results, const formula::Value* scalars) {
  const opdock_device_facts& facts = *in->target->facts;
  formula::DeviceTraits traits;
  traits.multiprocessors = facts.multiprocessors;
  traits.warp_size = facts.warp_size;
  traits.max_threads = facts.max_threads_per_block;
  const formula::DeviceLaunch plan = formula::plan_launch(
      graph_, space, traits, formula::launch_is_even(graph_, space, inputs, results));
  const std::string key = key_of(plan.shape, in->target->device);
  opdock_kernel* kernel = known(key);
  if (kernel == nullptr) kernel = make(in, key, plan.shape);
  std::vector<uint64_t> words = formula::launch_parameters(graph_, space, inputs, results, scalars);
  const size_t numbers = graph_.scalars().size();
  std::vector<void*> args = {words.data()};
  for (size_t i = 0; i < numbers; ++i) args.push_back(&words[words.size() - numbers + i]);
  opdock_launch launch{};
  launch.struct_size = sizeof launch;
  for (size_t i = 0; i < 3; ++i) {
    launch.grid[i] = plan.grid[i];
    launch.block[i] = 1;
  }
  launch.block[0] = plan.threads;
  launch.args = args.data();
  launch.num_args = static_cast<uint32_t>(args.size());
  return in->call.host->launch(&in->call, kernel, &launch);
}

}  // namespace opdock
