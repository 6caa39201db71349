// Stream capture: what it forbids, and graphs as a list of commands in the order of their capture.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>

#include "stream.h"

namespace softgpu {

// Given up under the state's mutex.
struct Commands {
  std::vector<Work> nodes;
  std::vector<void*> memory;  // allocated while they were captured; lives as long as they do
  ~Commands();
};

struct Graph {
  std::shared_ptr<Commands> commands;
};

struct Capture {
  std::shared_ptr<Commands> commands = std::make_shared<Commands>();
  int mode = 0;  // 0: unsafe calls of any thread are forbidden, 1: of this one, 2: of none
  std::thread::id thread;
  std::vector<Stream*> streams;  // the first began it, the others waited for it
  bool invalid = false;
};

// Of all these the mutex must be held.

Result begin_capture(const std::shared_ptr<Stream>& stream, int mode);
// *graph is NULL if the capture was invalid.
Result finish_capture(Stream* stream, Graph** graph);
// Without a graph: its streams capture no more.
void end_capture(Capture* capture);
// Makes `stream` part of a capture that it waits for.
Result join_capture(Stream* stream, const std::shared_ptr<Capture>& capture);

Result add_node(Capture* capture, Work work);

// A call that may not be made while a stream captures: kCaptureUnsupported then.
Result forbid_in_capture();
// As above for a call that asks about `stream`.
Result forbid_in_capture_of(const Stream& stream);
// A command of the legacy stream would depend on what is captured.
Result check_implicit(Stream* stream);

// An instance: a graph with a handle of its own that shares the list.
Result instantiate(Graph* graph, Graph** instance);
Result destroy_graph(Graph* graph);
// Gives the graph's commands to the stream, in order; they keep the list.
Result launch_graph(Stream* stream, Graph* graph);

}  // namespace softgpu
