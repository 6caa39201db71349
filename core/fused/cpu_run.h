// Runs a formula's graph on the CPU: by compiled code where there is some, else by the interpreter.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formula/graph.h"
#include "formula/space.h"
#include "fused/fused_instance.h"
#include "opdock/plugin.h"

namespace opdock {

struct CpuWork {
  FusedInstance& instance;
  const formula::Space& space;
  void* const* inputs;
  void* const* results;
  const formula::Value* scalars;
  void* partial = nullptr;  // memory of partial_bytes(); null: the graph has no
                            // sums over rows
};

opdock_status run_on_cpu(const opdock_call* call, const CpuWork& work);

}  // namespace opdock
