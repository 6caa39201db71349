// Streams: queues of commands, each with its own thread, and the order between them. Without "code"
// in the configuration, a command is complete before the call returns.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>

#include "state.h"

namespace softgpu {

// Tells whether a command is complete. Guarded by the state's mutex.
struct Signal {
  bool done = false;
  std::chrono::steady_clock::time_point when;
};

// Returns false if there was a finding; the stream's context then fails. Runs on the stream's
// thread without the mutex. A graph runs an action more than once.
using Action = std::function<bool(const Operation&)>;

// Work that is submitted to a stream.
struct Work {
  std::string what;                    // for messages
  Action action = {};                  // empty: only a place in the order
  std::vector<uintptr_t> writes = {};  // addresses of memory that it may write, if known
  bool kernel = false;
  bool programmatic = false;  // may begin before the previous kernel of its stream has ended
};

struct Command {
  Operation operation;
  Action action;  // empty: only a place in the order
  std::vector<uintptr_t> writes;
  std::vector<std::shared_ptr<Signal>> after;
  std::shared_ptr<Signal> done;
};

struct Capture;

struct Stream : std::enable_shared_from_this<Stream> {
  DeviceContext* context = nullptr;
  uint32_t number = 0;  // from 1, across all devices
  bool legacy = false;
  bool blocking = true;  // waits for the legacy stream, and the legacy stream waits for it
  int priority = 0;
  unsigned flags = 0;
  std::shared_ptr<Capture> capture;  // the capture that it is part of, or NULL

  std::deque<Command> queue;  // the first command is being executed
  bool has_thread = false;
  bool closed = false;  // accepts no more commands; the thread ends when the queue is empty
  uint64_t count = 0;   // commands so far
  // The number of the newest command that is a kernel, and its Operation::early.
  uint64_t kernel = 0;
  uint64_t kernel_early = 0;
  Clock clock;                   // what the next command is ordered after
  std::shared_ptr<Signal> last;  // of the newest command
};

// Handles 1 and 2 are the legacy stream and this thread's default stream.
inline bool is_legacy_handle(const Stream* stream) {
  return stream == nullptr || stream == reinterpret_cast<const Stream*>(1);
}
inline bool is_per_thread_handle(const Stream* stream) {
  return stream == reinterpret_cast<const Stream*>(2);
}

// The mutex must be held for all functions below.

// Opens a stream. close_stream() makes its handle invalid, but its commands are still executed.
std::shared_ptr<Stream> open_stream(DeviceContext* context, bool blocking);
void close_stream(Stream* stream);

// Returns the stream of a handle; default streams are those of `current`. NULL if there is none.
std::shared_ptr<Stream> find_stream(Stream* handle, DeviceContext* current);

// Adds a command, or a node to the graph that is being captured. *done, if requested, is NULL for a
// node. If kernels are not executed, runs the command immediately on this thread.
Result submit(Stream* stream, Work work, std::shared_ptr<Signal>* done = nullptr);

// Reserves a place in the order of a stream that is not being captured, and returns it as an
// Operation.
Result submit_mark(Stream* stream, const std::string& what, Operation* out);

// Makes the stream's next commands wait for `signal`, and orders them after `clock`.
void depend(Stream* stream, const std::shared_ptr<Signal>& signal, const Clock& clock);

// Waits for a command that is ordered after `clock`; the host is then ordered after it, too.
void wait_for(Lock* lock, std::shared_ptr<Signal> signal, Clock clock);

// Wait for all work of the stream or of the context; a context of NULL means all contexts.
void wait_for_stream(Lock* lock, const std::shared_ptr<Stream>& stream);
void wait_for_context(Lock* lock, const DeviceContext* context);

// Ends the streams' threads when their work is done. New work starts new threads.
void stop_threads(Lock* lock);

// Returns whether the stream has no work left; the host is then ordered after its work.
bool is_idle(Stream* stream);

// Makes a command's action of the caller's function, which must not call the driver.
Action host_action(void (*function)(void*), void* data);

// Names a stream: "stream 2 of cuda:0".
std::string name_of(const Stream& stream);

// Sets each stream's number in `into` to the larger one of both clocks.
void join(Clock* into, const Clock& from);

}  // namespace softgpu
