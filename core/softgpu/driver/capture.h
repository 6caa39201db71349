// Stream capture: the calls that it forbids, and graphs as a list of commands in the order of
// capture.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>

#include "stream.h"

namespace softgpu {

// Must be released under the state's mutex.
struct Commands {
  std::vector<Work> nodes;
  std::vector<void*> memory;  // allocated during the capture; freed with the commands
  ~Commands();
};

struct Graph {
  std::shared_ptr<Commands> commands;
};

struct Capture {
  std::shared_ptr<Commands> commands = std::make_shared<Commands>();
  int mode = 0;  // unsafe calls are forbidden for 0: all threads, 1: this thread, 2: none
  std::thread::id thread;
  std::vector<Stream*> streams;  // the first one began the capture, the others joined it
  bool invalid = false;
};

// The mutex must be held for all functions below.

Result begin_capture(const std::shared_ptr<Stream>& stream, int mode);
// Ends a capture; *graph is NULL if the capture was invalid.
Result finish_capture(Stream* stream, Graph** graph);
// Ends a capture without a graph: its streams stop capturing.
void end_capture(Capture* capture);
// Adds `stream` to a capture that it waits for.
Result join_capture(Stream* stream, const std::shared_ptr<Capture>& capture);

Result add_node(Capture* capture, Work work);

// Checks a call that is forbidden while a stream is being captured; returns kCaptureUnsupported
// then.
Result forbid_in_capture();
// Does the same for a call that concerns `stream`.
Result forbid_in_capture_of(const Stream& stream);
// Checks that a command of the legacy stream would not depend on captured commands.
Result check_implicit(Stream* stream);

// Creates an instance: a graph with its own handle that shares the list of commands.
Result instantiate(Graph* graph, Graph** instance);
Result destroy_graph(Graph* graph);
// Submits the graph's commands to the stream in order. The submitted commands keep the list alive.
Result launch_graph(Stream* stream, Graph* graph);

}  // namespace softgpu
