// The kernels of a formula on GPUs, each compiled when a call first needs it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/fork_aware_lock.h"
#include "formula/graph.h"
#include "formula/space.h"
#include "opdock/plugin.h"

struct opdock_kernel;
struct opdock_module;
struct opdock_runtime;

namespace opdock {

struct Invocation;

class FusedKernels {
 public:
  FusedKernels();
  ~FusedKernels();

  // Launches the kernel for this space on the call's stream. Compiles it first if it is the first
  // of its kind on the device: that may block, and fails while the stream is being captured.
  // inputs, results: the tensors' first elements. scalars: of the graph, in their order.
  opdock_status launch(Invocation* in, opdock_runtime* runtime, const formula::Graph& graph,
                       const formula::Space& space, void* const* inputs, void* const* results,
                       const formula::Value* scalars);

 private:
  ForkAwareLock lock_;  // guards what follows
  std::map<std::string, std::unique_ptr<opdock_module>> modules_;
};

}  // namespace opdock
