// SPDX-License-Identifier: Apache-2.0
#include "stream.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "at_exit.h"
#include "capture.h"

namespace softgpu {
namespace {

Result result_of(Fault fault) {
  switch (fault) {
    case Fault::kAddress:
      return kIllegalAddress;
    case Fault::kMisaligned:
      return kMisalignedAddress;
    default:
      return kLaunchFailed;
  }
}

bool is_ready(const Command& command) {
  return std::all_of(command.after.begin(), command.after.end(),
                     [](const std::shared_ptr<Signal>& signal) { return signal->done; });
}

void finish(const Command* command) {
  command->done->done = true;
  command->done->when = std::chrono::steady_clock::now();
}

// Executes a command without the mutex, and destroys its action with the mutex held. After a fault
// the device's later commands do nothing.
void execute_command(Lock* lock, DeviceContext* context, Command* command) {
  if (command->action) {
    Action action = std::move(command->action);
    const bool skip = context->failed != kSuccess;
    lock->unlock();
    const Result result = skip || action(command->operation) ? kSuccess : result_of(last_fault());
    lock->lock();
    if (result != kSuccess) {
      Result none = kSuccess;
      context->failed.compare_exchange_strong(none, result);
      write_findings();
    }
  }
  finish(command);
}

void forget(const Stream* stream) {
  std::erase_if(state().all_streams, [&](const auto& other) { return other.get() == stream; });
}

void work(std::shared_ptr<Stream> stream) {
  Lock lock = lock_state();
  for (;;) {
    state().progress.wait(lock, [&] {
      return stream->queue.empty() ? stream->closed || state().stopping
                                   : is_ready(stream->queue.front());
    });
    if (stream->queue.empty()) break;
    Command& command = stream->queue.front();  // not moved: only this thread removes from the front
    execute_command(&lock, stream->context, &command);
    stream->queue.pop_front();
    state().progress.notify_all();
  }
  stream->has_thread = false;
  if (stream->closed) forget(stream.get());
  const auto own = state().threads.find(stream.get());
  state().ended.push_back(std::move(own->second));
  state().threads.erase(own);
  state().progress.notify_all();
}

// Joins without blocking: a thread adds itself to `ended` while it holds the mutex, which this
// thread holds now, and does not lock it again.
void join_ended() {
  for (std::thread& thread : state().ended) thread.join();
  state().ended.clear();
}

void push(Stream* stream, Command command) {
  stream->queue.push_back(std::move(command));
  if (!stream->has_thread) {
    stream->has_thread = true;
    join_ended();
    state().threads[stream] = std::thread(work, stream->shared_from_this());
  }
  state().progress.notify_all();
}

void after_stream(Command* command, Clock* clock, const Stream& other) {
  if (other.last && !other.last->done) command->after.push_back(other.last);
  join(clock, other.clock);
}

// Returns the stream and, if it is the legacy stream, all streams that it would wait for.
std::vector<std::shared_ptr<Stream>> with_blocking(Stream* stream) {
  std::vector<std::shared_ptr<Stream>> streams = {stream->shared_from_this()};
  if (!stream->legacy) return streams;
  for (const std::shared_ptr<Stream>& other : state().all_streams) {
    const bool waits = other->context == stream->context && other->blocking;
    if (waits && other.get() != stream) streams.push_back(other);
  }
  return streams;
}

// Adds what a command must wait for in addition to the earlier commands of its own stream.
void order(Stream* stream, Command* command) {
  DeviceContext* const context = stream->context;
  if (stream->legacy) {
    for (const std::shared_ptr<Stream>& other : with_blocking(stream)) {
      if (other.get() != stream) after_stream(command, &stream->clock, *other);
    }
  } else if (stream->blocking && context->legacy) {
    after_stream(command, &stream->clock, *context->legacy);
  }
  join(&stream->clock, state().host);
}

// Creates a command with its number and its place in the order, but does not add it to the queue.
Command next_command(Stream* stream, const std::string& what) {
  Command command;
  order(stream, &command);
  command.operation.what = what + " on " + name_of(*stream);
  command.operation.device = stream->context->gpu->index;
  command.operation.stream = stream->number;
  command.operation.number = ++stream->count;
  command.operation.before = stream->clock;
  command.operation.read_only = read_only_of_thread();
  if (stream->clock.size() <= stream->number) stream->clock.resize(stream->number + 1);
  stream->clock[stream->number] = stream->count;
  command.done = std::make_shared<Signal>();
  stream->last = command.done;
  return command;
}

// A programmatic launch directly after another kernel is not ordered with that kernel until it
// waits, nor with the kernels that the other one may itself have overlapped. Kernels that the host
// knows to be complete are ordered before it.
void number_kernel(Stream* stream, bool programmatic, Operation* operation) {
  const Clock& host = state().host;
  const uint64_t done = stream->number < host.size() ? host[stream->number] : 0;
  const bool follows = stream->kernel != 0 && stream->kernel + 1 == operation->number;
  if (programmatic && follows && stream->kernel > done) {
    const uint64_t first = stream->kernel_early ? stream->kernel_early : stream->kernel;
    operation->early = std::max(first, done + 1);
  }
  stream->kernel = operation->number;
  stream->kernel_early = operation->early;
}

// A thread's default streams, one per context; they are closed when the thread ends.
struct ThreadStreams {
  std::map<DeviceContext*, std::shared_ptr<Stream>> streams;
  ~ThreadStreams() {
    if (state().init_pid != getpid()) return;
    const Lock lock = lock_state();
    for (const auto& [context, stream] : streams) close_stream(stream.get());
  }
};

std::shared_ptr<Stream> thread_stream(DeviceContext* context) {
  thread_local ThreadStreams own;
  std::shared_ptr<Stream>& stream = own.streams[context];
  if (!stream) stream = open_stream(context, true);
  return stream;
}

}  // namespace

void join(Clock* into, const Clock& from) {
  if (into->size() < from.size()) into->resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) (*into)[i] = std::max((*into)[i], from[i]);
}

std::string name_of(const Stream& stream) {
  const std::string device =
      (stream.context->gpu->amd ? "rocm:" : "cuda:") + std::to_string(stream.context->device);
  if (stream.legacy) return "the default stream of " + device;
  return "stream " + std::to_string(stream.number) + " of " + device;
}

Action host_action(void (*function)(void*), void* data) {
  return [=](const Operation&) {
    in_host_function() = true;
    function(data);
    in_host_function() = false;
    return true;
  };
}

std::shared_ptr<Stream> open_stream(DeviceContext* context, bool blocking) {
  auto stream = std::make_shared<Stream>();
  stream->context = context;
  stream->number = ++state().num_streams;
  stream->blocking = blocking;
  state().streams[stream.get()] = stream;
  state().all_streams.push_back(stream);
  return stream;
}

void close_stream(Stream* stream) {
  const auto found = state().streams.find(stream);
  if (found == state().streams.end()) return;
  stream->closed = true;
  if (stream->capture) end_capture(stream->capture.get());
  if (!stream->has_thread) forget(stream);
  state().streams.erase(found);
  state().progress.notify_all();
}

std::shared_ptr<Stream> find_stream(Stream* handle, DeviceContext* current) {
  if (is_legacy_handle(handle)) {
    if (current && !current->legacy) {
      current->legacy = open_stream(current, true);
      current->legacy->legacy = true;
    }
    return current ? current->legacy : nullptr;
  }
  if (is_per_thread_handle(handle)) return current ? thread_stream(current) : nullptr;
  const auto found = state().streams.find(handle);
  return found == state().streams.end() ? nullptr : found->second;
}

Result submit(Stream* stream, Work work, std::shared_ptr<Signal>* done) {
  if (done) *done = nullptr;
  if (stream->capture) return add_node(stream->capture.get(), std::move(work));
  if (const Result error = check_implicit(stream)) return error;
  Command command = next_command(stream, work.what);
  command.action = std::move(work.action);
  command.writes = std::move(work.writes);
  if (work.kernel) number_kernel(stream, work.programmatic, &command.operation);
  if (done) *done = command.done;
  if (config().executes()) {
    push(stream, std::move(command));
  } else {
    if (command.action) command.action(command.operation);
    finish(&command);
  }
  return kSuccess;
}

Result submit_mark(Stream* stream, const std::string& what, Operation* out) {
  if (const Result error = check_implicit(stream)) return error;
  Command command = next_command(stream, what);
  *out = command.operation;
  push(stream, std::move(command));
  return kSuccess;
}

void depend(Stream* stream, const std::shared_ptr<Signal>& signal, const Clock& clock) {
  join(&stream->clock, clock);
  if (!signal || signal->done) return;
  Command command = next_command(stream, "a wait");
  command.after.push_back(signal);
  push(stream, std::move(command));
}

void wait_for(Lock* lock, std::shared_ptr<Signal> signal, Clock clock) {
  if (signal) state().progress.wait(*lock, [&] { return signal->done; });
  join(&state().host, clock);
}

void wait_for_stream(Lock* lock, const std::shared_ptr<Stream>& stream) {
  for (const std::shared_ptr<Stream>& other : with_blocking(stream.get())) {
    wait_for(lock, other->last, other->clock);
  }
}

void stop_threads(Lock* lock) {
  state().stopping = true;
  state().progress.notify_all();
  state().progress.wait(*lock, [] { return state().threads.empty(); });
  state().stopping = false;
  join_ended();
}

void wait_for_context(Lock* lock, const DeviceContext* context) {
  const std::vector<std::shared_ptr<Stream>> streams = state().all_streams;
  for (const std::shared_ptr<Stream>& stream : streams) {
    if (!context || stream->context == context) wait_for(lock, stream->last, stream->clock);
  }
}

bool is_idle(Stream* stream) {
  const std::vector<std::shared_ptr<Stream>> streams = with_blocking(stream);
  for (const std::shared_ptr<Stream>& other : streams) {
    if (other->last && !other->last->done) return false;
  }
  for (const std::shared_ptr<Stream>& other : streams) join(&state().host, other->clock);
  return true;
}

}  // namespace softgpu
