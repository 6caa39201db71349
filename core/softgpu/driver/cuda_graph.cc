// CUDA's stream capture, and graphs of captured commands.
// SPDX-License-Identifier: Apache-2.0
#include "capture.h"
#include "cuda.h"

using namespace softgpu;

SOFTGPU_API CUresult cuStreamBeginCapture_v2(CUstream handle, int mode) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = enter_with_stream("cuStreamBeginCapture_v2", handle, &stream)) {
    return error;
  }
  const Lock lock = lock_state();
  return begin_capture(stream, mode);
}

SOFTGPU_API CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = enter_with_stream("cuStreamEndCapture", handle, &stream)) return error;
  const Lock lock = lock_state();
  return finish_capture(stream.get(), graph);
}

// An instance shares the graph's list of commands, because nothing changes a graph after its
// capture.
SOFTGPU_API CUresult cuGraphInstantiateWithFlags(CUgraphExec* instance, CUgraph graph,
                                                 unsigned long long) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuGraphInstantiateWithFlags", &context)) {
    return error;
  }
  const Lock lock = lock_state();
  return instantiate(graph, instance);
}

SOFTGPU_API CUresult cuGraphLaunch(CUgraphExec instance, CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = enter_with_stream("cuGraphLaunch", handle, &stream)) return error;
  const Lock lock = lock_state();
  return launch_graph(stream.get(), instance);
}

SOFTGPU_API CUresult cuGraphDestroy(CUgraph graph) {
  if (const CUresult error = enter("cuGraphDestroy")) return error;
  const Lock lock = lock_state();
  return destroy_graph(graph);
}

SOFTGPU_API CUresult cuGraphExecDestroy(CUgraphExec instance) {
  if (const CUresult error = enter("cuGraphExecDestroy")) return error;
  const Lock lock = lock_state();
  return destroy_graph(instance);
}
