// The kernels of a formula on GPUs: those that its plugin brings, and others, each compiled when a
// call first needs it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/fork_aware_lock.h"
#include "base/mutex.h"
#include "formula/device_launch.h"
#include "formula/graph.h"
#include "formula/rewrite.h"
#include "formula/space.h"
#include "opdock/plugin.h"

namespace opdock {

struct Invocation;

// A launch but for the addresses and the scalars, which it has of the call that it was made for.
struct PreparedLaunch {
  opdock_kernel* kernel = nullptr;
  opdock_launch how{};          // without arguments
  std::vector<uint64_t> words;  // by launch_parameters()
};

// Usable from any thread.
class FusedKernels {
 public:
  explicit FusedKernels(formula::Graph graph);
  ~FusedKernels();

  // Returns the launch for this space on the call's device. If the kernel is the first of its kind
  // there, it is first looked for in the plugin, and compiled if that has none: that may block, and
  // fails while the stream is being captured. inputs, results: the tensors' first elements.
  // scalars: of the graph, in their order. Throws Error.
  PreparedLaunch prepare(Invocation* in, const formula::Space& space, void* const* inputs,
                         void* const* results, const formula::Value* scalars);
  // Launches on the call's stream what was prepared for a call with the same layouts, whose
  // addresses have the same remainders by formula::kAddressUnit.
  opdock_status launch(Invocation* in, const PreparedLaunch& prepared, void* const* inputs,
                       void* const* results, const formula::Value* scalars) const;

  // Launches a graph with sums over rows, which a second launch adds up. workspace: of
  // partial_bytes(). The space may be empty: then the sums are 0.
  opdock_status launch_with_sums(Invocation* in, const formula::Space& space, void* const* inputs,
                                 void* const* results, const formula::Value* scalars,
                                 void* workspace);
  // space: only its rows and columns count.
  int64_t partial_bytes(const formula::Space& space) const;

 private:
  opdock_kernel* known(const std::string& key);
  opdock_kernel* keep(const std::string& key, opdock_kernel* made);
  // Returns the kernel `name` of a source, and keeps it by the key.
  opdock_kernel* make(Invocation* in, const std::string& key, std::string source, const char* name);
  opdock_status add_sums(Invocation* in, const formula::Space& space,
                         const formula::DeviceLaunch& first, void* const* results, void* workspace);

  const formula::Graph graph_;
  ForkAwareLock making_;  // held by the thread that compiles
  Mutex mutex_;           // guards what follows
  std::map<std::string, opdock_kernel*> kernels_;
};

}  // namespace opdock
