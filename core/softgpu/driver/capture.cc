// SPDX-License-Identifier: Apache-2.0
#include "capture.h"

#include <algorithm>

#include "memory.h"

namespace softgpu {
namespace {

// If kernels are only recorded, the capture stays valid, so that tests can continue it.
Result unsupported(Capture* capture) {
  if (config().executes()) capture->invalid = true;
  return kCaptureUnsupported;
}

Graph* new_graph(std::shared_ptr<Commands> commands) {
  auto graph = std::make_shared<Graph>(Graph{std::move(commands)});
  Graph* const handle = graph.get();
  state().graphs[handle] = std::move(graph);
  return handle;
}

}  // namespace

Commands::~Commands() {
  for (void* memory : this->memory) release_graph_memory(memory);
}

Result begin_capture(const std::shared_ptr<Stream>& stream, int mode) {
  if (stream->legacy || stream->capture) return kCaptureUnsupported;
  stream->capture = std::make_shared<Capture>();
  stream->capture->mode = mode;
  stream->capture->thread = std::this_thread::get_id();
  stream->capture->streams.push_back(stream.get());
  return kSuccess;
}

void end_capture(Capture* capture) {
  const std::vector<Stream*> streams = std::move(capture->streams);
  for (Stream* stream : streams) stream->capture = nullptr;
}

Result finish_capture(Stream* stream, Graph** graph) {
  *graph = nullptr;
  if (!stream->capture) return kInvalidValue;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->streams.front() != stream) return kCaptureUnmatched;
  end_capture(capture.get());
  if (capture->invalid) return kCaptureInvalidated;
  *graph = new_graph(capture->commands);
  return kSuccess;
}

Result join_capture(Stream* stream, const std::shared_ptr<Capture>& capture) {
  if (stream->capture == capture) return kSuccess;
  if (stream->capture) return kCaptureMerge;
  if (stream->legacy) return kCaptureImplicit;
  stream->capture = capture;
  capture->streams.push_back(stream);
  return kSuccess;
}

Result add_node(Capture* capture, Work work) {
  if (capture->invalid) return kCaptureInvalidated;
  if (work.action) capture->commands->nodes.push_back(std::move(work));
  return kSuccess;
}

Result forbid_in_capture() {
  for (const auto& [handle, stream] : state().streams) {
    if (!stream->capture) continue;
    const Capture& capture = *stream->capture;
    const bool concerned =
        capture.mode == 0 || (capture.mode == 1 && capture.thread == std::this_thread::get_id());
    if (concerned) return unsupported(stream->capture.get());
  }
  return kSuccess;
}

Result forbid_in_capture_of(const Stream& stream) {
  return stream.capture ? unsupported(stream.capture.get()) : forbid_in_capture();
}

Result check_implicit(Stream* stream) {
  if (!stream->legacy || !config().executes()) return kSuccess;
  for (const auto& [handle, other] : state().streams) {
    if (other->capture && other->blocking && other->context == stream->context) {
      other->capture->invalid = true;
      return kCaptureImplicit;
    }
  }
  return kSuccess;
}

Result instantiate(Graph* graph, Graph** instance) {
  if (!state().graphs.contains(graph)) return kInvalidValue;
  *instance = new_graph(graph->commands);
  return kSuccess;
}

Result destroy_graph(Graph* graph) {
  return state().graphs.erase(graph) == 1 ? kSuccess : kInvalidValue;
}

Result launch_graph(Stream* stream, Graph* graph) {
  if (!state().graphs.contains(graph)) return kInvalidValue;
  const std::shared_ptr<Commands> commands = graph->commands;
  for (const Work& node : commands->nodes) {
    Work work = node;
    work.action = [commands, kept = &node](const Operation& operation) {
      return kept->action(operation);
    };
    if (const Result error = submit(stream, std::move(work))) return error;
  }
  return kSuccess;
}

}  // namespace softgpu
