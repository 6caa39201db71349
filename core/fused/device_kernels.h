// The kernels of a formula on GPUs, each compiled when a call first needs it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "base/fork_aware_lock.h"
#include "base/mutex.h"
#include "formula/device_source.h"
#include "formula/graph.h"
#include "formula/rewrite.h"
#include "formula/space.h"
#include "opdock/plugin.h"

namespace opdock {

struct Invocation;

// Usable from any thread.
class FusedKernels {
 public:
  explicit FusedKernels(formula::Graph graph);
  ~FusedKernels();

  // Launches the kernel for this space on the call's stream. Compiles it first if it is the first
  // of its kind on the device: that may block, and fails while the stream is being captured.
  // inputs, results: the tensors' first elements. scalars: of the graph, in their order. Throws
  // Error.
  opdock_status launch(Invocation* in, const formula::Space& space, void* const* inputs,
                       void* const* results, const formula::Value* scalars);

 private:
  opdock_kernel* known(const std::string& key);
  opdock_kernel* make(Invocation* in, const std::string& key, const formula::DeviceShape& shape);

  const formula::Graph graph_;
  ForkAwareLock making_;  // held by the thread that compiles
  Mutex mutex_;           // guards what follows
  std::map<std::string, opdock_kernel*> kernels_;
};

}  // namespace opdock
