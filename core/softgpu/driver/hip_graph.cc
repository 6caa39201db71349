// HIP's capture and graphs.
// SPDX-License-Identifier: Apache-2.0
#include "capture.h"
#include "hip.h"

using namespace softgpu;
using namespace softgpu::hip;

namespace {

using StreamPtr = std::shared_ptr<Stream>;

}  // namespace

SOFTGPU_API Result hipStreamBeginCapture(Stream* handle, int mode) {
  return on_stream("hipStreamBeginCapture", handle,
                   [&](const StreamPtr& stream, Lock*) { return begin_capture(stream, mode); });
}

SOFTGPU_API Result hipStreamEndCapture(Stream* handle, Graph** graph) {
  return on_stream("hipStreamEndCapture", handle, [&](const StreamPtr& stream, Lock*) {
    return finish_capture(stream.get(), graph);
  });
}

SOFTGPU_API Result hipStreamIsCapturing(Stream* handle, int* status) {
  constexpr int kNone = 0, kActive = 1, kInvalidated = 2;
  return on_stream("hipStreamIsCapturing", handle, [&](const StreamPtr& stream, Lock*) {
    const Capture* const capture = stream->capture.get();
    *status = !capture ? kNone : capture->invalid ? kInvalidated : kActive;
    return kSuccess;
  });
}

SOFTGPU_API Result hipGraphInstantiateWithFlags(Graph** instance, Graph* graph,
                                                unsigned long long) {
  return on_locked_device("hipGraphInstantiateWithFlags",
                          [&](DeviceContext*, Lock*) { return instantiate(graph, instance); });
}

SOFTGPU_API Result hipGraphInstantiate(Graph** instance, Graph* graph, void*, char*, size_t) {
  return hipGraphInstantiateWithFlags(instance, graph, 0);
}

SOFTGPU_API Result hipGraphLaunch(Graph* instance, Stream* handle) {
  return on_stream("hipGraphLaunch", handle, [&](const StreamPtr& stream, Lock*) {
    return launch_graph(stream.get(), instance);
  });
}

SOFTGPU_API Result hipGraphDestroy(Graph* graph) {
  return on_locked_device("hipGraphDestroy",
                          [&](DeviceContext*, Lock*) { return destroy_graph(graph); });
}

SOFTGPU_API Result hipGraphExecDestroy(Graph* instance) {
  return on_locked_device("hipGraphExecDestroy",
                          [&](DeviceContext*, Lock*) { return destroy_graph(instance); });
}
