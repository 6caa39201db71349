// What both drivers keep: contexts, streams, events, modules, memory. One mutex guards it all; what
// a context, stream or module is, their own headers say.
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

// The primary context of a device; HIP's devices have one as well.
struct DeviceContext {
  const Gpu* gpu = nullptr;
  int device = 0;                        // as the API numbers it
  int references = 0;                    // of the primary context; active while there are any
  std::atomic<Result> failed{kSuccess};  // sticky, as after a fault of the device
  std::shared_ptr<Stream> legacy;        // made on first use
  uint64_t used = 0;                     // bytes of the device's memory
};

struct Memory {
  uint64_t size = 0;
  DeviceContext* context = nullptr;
  bool pinned = false;   // host memory
  bool ordered = false;  // made in a stream's order
  bool in_graph = false;
  std::string maker;  // for leaks: "cuMemAlloc_v2 (its allocation 3)"
};

struct State {
  std::mutex mutex;
  std::condition_variable progress;  // a command is done, or there is one more
  std::atomic<int> init_pid{0};      // the process that initialised the driver; 0: none has
  std::atomic<Result> sticky{kSuccess};
  std::deque<DeviceContext> cuda, hip;                 // one a visible device
  std::map<Stream*, std::shared_ptr<Stream>> streams;  // by handle
  std::vector<std::shared_ptr<Stream>> all_streams;    // destroyed ones too while they have work
  std::map<Stream*, std::thread> threads;              // of streams that have had work
  std::vector<std::thread> ended;                      // those that need no mutex any more
  bool stopping = false;                               // threads end when they have no work
  std::map<Event*, std::shared_ptr<Event>> events;
  std::map<LoadedModule*, std::shared_ptr<LoadedModule>> modules;
  std::map<LoadedLibrary*, std::shared_ptr<LoadedLibrary>> libraries;
  std::map<Graph*, std::shared_ptr<Graph>> graphs;  // instantiated ones as well
  std::map<uintptr_t, Memory> memory;               // by address
  Clock host;                                       // what the host has waited for
  uint32_t num_streams = 0;                         // ever made: they number the streams
};
State& state();

using Lock = std::unique_lock<std::mutex>;
inline Lock lock_state() {
  return Lock(state().mutex);
}

// Readies contexts and the engine, once; a process that forked after it cannot use the driver.
// kNoDevice if `gpus` is empty.
Result initialise(std::deque<DeviceContext>* contexts, const std::vector<Gpu>& gpus);

// What every entry point asks first: configured failure, then a sticky error, then whether the
// driver was initialised in this very process, then whether this is a function that a stream calls.
Result enter(const char* function);

// Memory that nothing which this thread gives to streams has any business to write, until it says
// otherwise: cuSoftReadOnly, hipSoftReadOnly.
std::vector<ReadOnly>& read_only_of_thread();
// Names `count` ranges, instead of those of before; `what` says what they are.
Result set_read_only(const void* const* addresses, const uint64_t* bytes, unsigned count,
                     const char* what);

// Commands of this thread's stream run host functions, which may not call the driver.
bool& in_host_function();

// The allocation that holds [address, address + size), or NULL. The mutex must be held.
const Memory* find_memory(uintptr_t address, uint64_t size);

}  // namespace softgpu
