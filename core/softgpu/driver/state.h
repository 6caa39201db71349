// State that both drivers share: contexts, streams, events, modules, memory. One mutex guards all
// of it. Streams, events, modules and graphs have their own headers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../engine/engine.h"
#include "config.h"
#include "failures.h"
#include "record.h"
#include "result.h"

#define SOFTGPU_API extern "C" __attribute__((visibility("default")))

namespace softgpu {

struct Stream;
struct Event;
struct LoadedModule;
struct LoadedLibrary;
struct Graph;

// The primary context of a device; HIP's devices have one, too.
struct DeviceContext {
  const Gpu* gpu = nullptr;
  int device = 0;      // the API's number for it
  int references = 0;  // to the primary context, which is active while there are any
  std::atomic<Result> failed{kSuccess};  // sticky, as after a fault of the device
  std::shared_ptr<Stream> legacy;        // created on first use
  uint64_t used = 0;                     // bytes of the device's memory
};

struct Memory {
  uint64_t size = 0;
  DeviceContext* context = nullptr;
  bool pinned = false;   // host memory
  bool ordered = false;  // allocated in stream order
  bool in_graph = false;
  std::string maker;  // for leaks: "cuMemAlloc_v2 (its allocation 3)"
};

struct State {
  std::mutex mutex;
  std::condition_variable progress;  // a command is done or was added
  std::atomic<int> init_pid{0};      // the process that initialised the driver; 0: none
  std::atomic<Result> sticky{kSuccess};
  std::deque<DeviceContext> cuda, hip;                 // one per visible device
  std::map<Stream*, std::shared_ptr<Stream>> streams;  // by handle
  std::vector<std::shared_ptr<Stream>> all_streams;    // also destroyed ones with work left
  std::map<Stream*, std::thread> threads;              // of the streams that have had work
  std::vector<std::thread> ended;  // finished threads to join; they do not lock the mutex again
  bool stopping = false;           // threads end when they have no work
  std::map<Event*, std::shared_ptr<Event>> events;
  std::map<LoadedModule*, std::shared_ptr<LoadedModule>> modules;
  std::map<LoadedLibrary*, std::shared_ptr<LoadedLibrary>> libraries;
  std::map<Graph*, std::shared_ptr<Graph>> graphs;  // including instances
  std::map<uintptr_t, Memory> memory;               // by address
  Clock host;                                       // the commands that the host has waited for
  uint32_t num_streams = 0;  // number of streams ever created, which also numbers them
};
State& state();

using Lock = std::unique_lock<std::mutex>;
inline Lock lock_state() {
  return Lock(state().mutex);
}

// Initialises contexts and the engine once. A process that is forked later cannot use the driver.
// Returns kNoDevice if `gpus` is empty.
Result initialise(std::deque<DeviceContext>* contexts, const std::vector<Gpu>& gpus);

// Begins every entry point. Returns, in this order: a configured failure, a sticky error, an error
// if the driver was not initialised in this process, or an error if the caller is a stream's host
// function.
Result enter(const char* function);

// Memory that the commands of this thread must not write, until the thread changes it: see
// cuSoftReadOnly and hipSoftReadOnly.
std::vector<ReadOnly>& read_only_of_thread();
// Replaces the thread's ranges by `count` new ones; `what` describes them in messages.
Result set_read_only(const void* const* addresses, const uint64_t* bytes, unsigned count,
                     const char* what);

// True while this thread runs a host function of a stream, which must not call the driver.
bool& in_host_function();

// Returns the allocation that contains [address, address + size), or NULL. The mutex must be held.
const Memory* find_memory(uintptr_t address, uint64_t size);

}  // namespace softgpu
