// The software GPU's engine. It executes kernels on the CPU, with the threads of a block as fibers,
// and checks every access to device memory, byte by byte. It knows no driver interface; the
// stand-in drivers (core/softgpu/driver) implement CUDA's and HIP's interfaces with it. There is
// one engine per process. Thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace softgpu {

// ---- settings

struct Settings {
  uint64_t seed = 0;     // decides the order in which blocks and threads run
  unsigned workers = 0;  // threads that execute blocks; 0: one per core
  bool counters = false;
  // The number of steps, stretches of code without a branch, that all threads of a block together
  // may take in a launch. Exceeding it is a finding. The default takes some seconds.
  uint64_t steps = uint64_t{1} << 28;
};
// Must be called first. Later calls affect only what starts after them.
void configure(const Settings& settings);

// ---- order between streams

// For each stream, by its number, how many of its operations are certainly complete.
using Clock = std::vector<uint64_t>;

// Memory that must not be written. `what` describes it: "an input of softmax()".
struct ReadOnly {
  uintptr_t begin = 0;
  uint64_t bytes = 0;
  std::string what;
};

// One command of a stream: a launch, a copy, a fill. Memory remembers which operation wrote it. If
// an operation accesses what another one wrote and is not ordered after it, that is a finding.
struct Operation {
  std::string what;  // for messages: "softmax::any_rows<float> on stream 2 of device 0"
  int device = 0;
  uint32_t stream = 0;  // unique among the streams of all devices; 0: the host itself
  uint64_t number = 0;  // counts the stream's operations, from 1
  Clock before;         // the operations that this one is ordered after
  // For a launch that may begin early: operations of the stream from this number on may still be
  // running, until the kernel waits for them. 0: none.
  uint64_t early = 0;
  std::vector<ReadOnly> read_only;  // memory that it must not write
};

// Returns the `what` of unfinished operations that may write to the memory at `address` and are not
// ordered with `reader`. Called when memory is read that has not been written.
using PendingWrites =
    std::function<std::vector<std::string>(const Operation& reader, uintptr_t address)>;
void ask_pending_writes(PendingWrites ask);

// ---- memory

struct Allocation {
  uintptr_t begin = 0;
  uint64_t bytes = 0;
  int device = -1;
};
// Allocates uninitialised memory at a multiple of 256 bytes, with guard zones around it. Returns
// nullptr if the host has no memory left; the caller has to enforce the device's limit.
void* allocate(int device, uint64_t bytes);
// Releases memory. Its bytes must not be accessed any more, and its addresses are not reused soon.
// Returns false if `memory` is not the start of an allocation.
bool release(void* memory);
// Finds the live allocation that contains all `bytes` from `address` on.
bool find_allocation(uintptr_t address, uint64_t bytes, Allocation* out);
// Returns the allocations that were not released, in the order of allocation, for leak reports.
std::vector<Allocation> live_allocations();

// Stream-ordered memory. allocate(): only operations that are ordered after `operation` may access
// it. release(): all accesses must be ordered before `operation`. It returns false if there was a
// finding, or if `memory` is not the start of an allocation.
void* allocate(const Operation& operation, uint64_t bytes);
bool release(const Operation& operation, void* memory);

// Copies are executed immediately, on the calling thread. A device range must lie in one
// allocation, and if it is read it must have been written. Otherwise there is a finding, and the
// copy returns false.
bool copy_to_device(const Operation& operation, void* to, const void* from, uint64_t bytes);
bool copy_from_device(const Operation& operation, void* to, const void* from, uint64_t bytes);
bool copy_on_device(const Operation& operation, void* to, const void* from, uint64_t bytes);
// Fills `count` elements of `size` bytes (1, 2 or 4) with the bits of `value`.
bool fill(const Operation& operation, void* to, uint32_t value, unsigned size, uint64_t count);

// ---- kernels

// A shared object that compile_kernels() (compile.h) made from device source.
class KernelLibrary;

struct Kernel {
  std::string name;        // mangled name in the image
  std::string expression;  // name in the source: "softmax::any_rows<float>"
  std::vector<uint32_t> param_sizes;
  uint32_t warp_size = 32;
  // The launch bound. Only the image states it, so the caller that has the image sets this.
  uint32_t max_threads = 1024;
  std::shared_ptr<KernelLibrary> library;
};

// Opens a library and returns its kernels. A path is opened once and stays open while one of its
// kernels exists. Returns no kernels and sets *problem on failure.
std::vector<Kernel> open_kernels(const std::string& path, std::string* problem);

struct Launch {
  const Kernel* kernel = nullptr;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t cluster[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;                // dynamic
  uint32_t most_static_shared = 64 * 1024;  // bytes
  bool cooperative = false;
  std::vector<std::vector<uint8_t>> args;  // copies with the sizes of param_sizes
};

// Executes the whole grid and returns when it is complete. Returns false if there was a finding;
// the rest of the grid is then not executed. Several launches may be executed at the same time.
bool execute(const Operation& operation, const Launch& launch);

// ---- findings

// Returns the text of each finding: what happened, kernel, block, thread, source line, where the
// memory was written or allocated, and how to repeat the same order. Findings are also printed to
// stderr when they occur.
std::vector<std::string> findings();
void clear_findings();

// Returns how a GPU would report the last operation of this thread that returned false: an address
// that it must not access, a misaligned address, or something that a GPU does not detect (a race,
// uninitialised memory, no progress).
enum class Fault { kNone, kAddress, kMisaligned, kOther };
Fault last_fault();

// ---- counters (Settings::counters)

struct Counters {
  std::string kernel;
  uint64_t launches = 0, blocks = 0, threads = 0;
  // Sectors of 32 bytes, counted for each request of a warp.
  uint64_t global_load_sectors = 0, global_store_sectors = 0;
  uint64_t global_load_requests = 0, global_store_requests = 0;
  uint64_t shared_load_requests = 0, shared_store_requests = 0, shared_bank_conflicts = 0;
  uint64_t barriers = 0;  // by blocks
  uint64_t shuffles = 0;  // by warps, including votes
  uint64_t atomics = 0;   // by warps
};
// All of them, by the names under which they are written, in this order.
struct NamedCounter {
  const char* name;
  uint64_t Counters::* value;
};
inline constexpr NamedCounter kCounters[] = {
    {"launches", &Counters::launches},
    {"blocks", &Counters::blocks},
    {"threads", &Counters::threads},
    {"global_load_sectors", &Counters::global_load_sectors},
    {"global_store_sectors", &Counters::global_store_sectors},
    {"global_load_requests", &Counters::global_load_requests},
    {"global_store_requests", &Counters::global_store_requests},
    {"shared_load_requests", &Counters::shared_load_requests},
    {"shared_store_requests", &Counters::shared_store_requests},
    {"shared_bank_conflicts", &Counters::shared_bank_conflicts},
    {"barriers", &Counters::barriers},
    {"shuffles", &Counters::shuffles},
    {"atomics", &Counters::atomics},
};
// Returns the sums by kernel, in the order of first launch.
std::vector<Counters> counters();

}  // namespace softgpu
