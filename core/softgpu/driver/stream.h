// Streams: queues of commands, each with its own thread, and the order between them. Without
// "code" in the configuration a command is done before the call returns.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>

#include "state.h"

namespace softgpu {

// Whether a command is done. Guarded by the state's mutex.
struct Signal {
  bool done = false;
  std::chrono::steady_clock::time_point when;
};

// False if there was a finding: the stream's context then fails. Runs on the stream's thread,
// without the mutex; a graph runs it more than once.
using Action = std::function<bool(const Operation&)>;

// What is given to a stream.
struct Work {
  std::string what;                    // for messages
  Action action = {};                  // none: only a place in the order
  std::vector<uintptr_t> writes = {};  // into what it may write, as far as that is known
  bool kernel = false;
  bool programmatic = false;  // may begin while the kernel before it on its stream has not ended
};

struct Command {
  Operation operation;
  Action action;  // none: only a place in the order
  std::vector<uintptr_t> writes;
  std::vector<std::shared_ptr<Signal>> after;
  std::shared_ptr<Signal> done;
};

struct Capture;

struct Stream : std::enable_shared_from_this<Stream> {
  DeviceContext* context = nullptr;
  uint32_t number = 0;  // from 1, of any device
  bool legacy = false;
  bool blocking = true;  // waits for the legacy stream, and that for it
  int priority = 0;
  unsigned flags = 0;
  std::shared_ptr<Capture> capture;  // while it captures

  std::deque<Command> queue;  // the first is being executed
  bool has_thread = false;
  bool closed = false;  // no more commands; the thread ends when the queue is empty
  uint64_t count = 0;   // commands so far
  uint64_t kernel = 0;  // the newest of them that is a kernel, and its Operation::early
  uint64_t kernel_early = 0;
  Clock clock;                   // what the next command is ordered after
  std::shared_ptr<Signal> last;  // of the newest command
};

// Handles 1 and 2 stand for the legacy and this thread's default stream.
inline bool is_legacy_handle(const Stream* stream) {
  return stream == nullptr || stream == reinterpret_cast<const Stream*>(1);
}
inline bool is_per_thread_handle(const Stream* stream) {
  return stream == reinterpret_cast<const Stream*>(2);
}

// Of all these the mutex must be held.

// A new stream; close_stream() takes its handle, though its commands are still executed.
std::shared_ptr<Stream> open_stream(DeviceContext* context, bool blocking);
void close_stream(Stream* stream);

// The stream behind a handle, default streams in `current`. NULL if there is none.
std::shared_ptr<Stream> find_stream(Stream* handle, DeviceContext* current);

// Adds a command, or a node to the graph that is captured. *done, if wanted, is NULL after the
// latter. Without a thread of its own the command is executed here.
Result submit(Stream* stream, Work work, std::shared_ptr<Signal>* done = nullptr);

// A place in the order of a stream that does not capture, as the Operation of whoever acts at it.
Result submit_mark(Stream* stream, const std::string& what, Operation* out);

// Lets the stream's next commands wait for `signal`, and be ordered after `clock`.
void depend(Stream* stream, const std::shared_ptr<Signal>& signal, const Clock& clock);

// Waits for a command that is ordered after `clock`; the host is then too.
void wait_for(Lock* lock, std::shared_ptr<Signal> signal, Clock clock);

// Waits for all that was given to the stream; to the context, NULL: to any.
void wait_for_stream(Lock* lock, const std::shared_ptr<Stream>& stream);
void wait_for_context(Lock* lock, const DeviceContext* context);

// Ends the streams' threads when their work is done; more work starts new ones.
void stop_threads(Lock* lock);

// Whether nothing is left to do; the host is then ordered after it.
bool is_idle(Stream* stream);

// A function of the caller's as a command: it may not call the driver.
Action host_action(void (*function)(void*), void* data);

// "stream 2 of cuda:0"
std::string name_of(const Stream& stream);

// Grows `into` to the larger number of each stream.
void join(Clock* into, const Clock& from);

}  // namespace softgpu
