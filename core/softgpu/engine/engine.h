// The software GPU's engine: device memory that is watched byte by byte, and kernels executed on
// the CPU, the threads of a block as fibers. It knows no driver interface; the stand-in drivers
// (core/softgpu/driver) put CUDA's and HIP's on top of it. One engine a process; thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace softgpu {

// ---- how it runs

struct Settings {
  uint64_t seed = 0;     // of the order in which blocks and threads run
  unsigned workers = 0;  // threads that execute blocks; 0: as many as there are cores
  bool counters = false;
  // How many steps, which are stretches of code without a branch, each block of a launch may take
  // with all its threads; more is a finding. Some seconds' worth.
  uint64_t steps = uint64_t{1} << 28;
};
// Before anything else; later calls change only what starts later.
void configure(const Settings& settings);

// ---- order between streams

// How far each stream has surely come, by the stream's number: operations of it that are done.
using Clock = std::vector<uint64_t>;

// Memory that only is to be read, and what for: "an input of softmax()".
struct ReadOnly {
  uintptr_t begin = 0;
  uint64_t bytes = 0;
  std::string what;
};

// One command of a stream: a launch, a copy, a fill. Memory remembers which operation wrote it; an
// operation that touches what another one wrote without being ordered after it is a finding.
struct Operation {
  std::string what;  // for messages: "softmax::any_rows<float> on stream 2 of device 0"
  int device = 0;
  uint32_t stream = 0;  // a number of its own for each stream of any device; 0: the host itself
  uint64_t number = 0;  // counts the stream's operations, from 1
  Clock before;         // what this operation is ordered after
  // A launch that may begin early: from this number on the stream's operations may still be under
  // way, until the kernel waits for them. 0: none.
  uint64_t early = 0;
  std::vector<ReadOnly> read_only;  // what it has no business to write
};

// What operations are not done, may write to the memory at `address` and are in no order with
// `reader`: their `what`. Asked where memory is read that nobody has written.
using PendingWrites =
    std::function<std::vector<std::string>(const Operation& reader, uintptr_t address)>;
void ask_pending_writes(PendingWrites ask);

// ---- memory

struct Allocation {
  uintptr_t begin = 0;
  uint64_t bytes = 0;
  int device = -1;
};
// Uninitialised memory at a multiple of 256 bytes, with guard zones around it. nullptr if the
// host has none left; the caller counts what the device has.
void* allocate(int device, uint64_t bytes);
// Its bytes may not be touched any more, and their addresses are not used again soon. False if
// `memory` is not the begin of an allocation.
bool release(void* memory);
// The live allocation in which all `bytes` from `address` lie.
bool find_allocation(uintptr_t address, uint64_t bytes, Allocation* out);
// Allocations that nobody released, for leak reports, in the order in which they were made.
std::vector<Allocation> live_allocations();

// Memory in a stream's order. allocate(): only operations that are ordered after `operation` may
// touch it. release(): whatever touched it must be ordered before `operation`; false if there was a
// finding, or if `memory` is not the begin of an allocation.
void* allocate(const Operation& operation, uint64_t bytes);
bool release(const Operation& operation, void* memory);

// Executed at once, on the calling thread. Device ranges must lie in one allocation and, where they
// are read, have been written; otherwise there is a finding and false.
bool copy_to_device(const Operation& operation, void* to, const void* from, uint64_t bytes);
bool copy_from_device(const Operation& operation, void* to, const void* from, uint64_t bytes);
bool copy_on_device(const Operation& operation, void* to, const void* from, uint64_t bytes);
// `count` elements of `size` bytes each, 1, 2 or 4, all with the bits of `value`.
bool fill(const Operation& operation, void* to, uint32_t value, unsigned size, uint64_t count);

// ---- kernels

// A shared object made from device source by compile_kernels() (compile.h).
class KernelLibrary;

struct Kernel {
  std::string name;        // in the image: mangled
  std::string expression;  // in the source: "softmax::any_rows<float>"
  std::vector<uint32_t> param_sizes;
  uint32_t warp_size = 32;
  uint32_t max_threads = 1024;  // its launch bound; only the image says it, so who has the
                                // image sets it
  std::shared_ptr<KernelLibrary> library;
};

// Opened once a path, kept as long as somebody holds a kernel of it. Empty and *problem otherwise.
std::vector<Kernel> open_kernels(const std::string& path, std::string* problem);

struct Launch {
  const Kernel* kernel = nullptr;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t cluster[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;                // dynamic
  uint32_t most_static_shared = 64 * 1024;  // bytes
  bool cooperative = false;
  std::vector<std::vector<uint8_t>> args;  // copies: each as large as param_sizes says
};

// Executes the whole grid and returns when it is done. False if there was a finding: the rest of
// the grid is then not executed. Several launches may be executed at once.
bool execute(const Operation& operation, const Launch& launch);

// ---- findings

// What went wrong, one text each: what, kernel, block, thread, source line, where it was written
// or allocated, and how to run the same order again. They are printed to stderr as they are found.
std::vector<std::string> findings();
void clear_findings();

// What a GPU would say of the last operation on this thread that returned false: an address that is
// not its to touch, one that is misaligned, or something that it would not see at all (a race,
// uninitialised memory, no progress).
enum class Fault { kNone, kAddress, kMisaligned, kOther };
Fault last_fault();

// ---- counters (Settings::counters)

struct Counters {
  std::string kernel;
  uint64_t launches = 0, blocks = 0, threads = 0;
  uint64_t global_load_sectors = 0, global_store_sectors = 0;  // of 32 bytes, a warp's request each
  uint64_t global_load_requests = 0, global_store_requests = 0;
  uint64_t shared_load_requests = 0, shared_store_requests = 0, shared_bank_conflicts = 0;
  uint64_t barriers = 0;  // passed by a block
  uint64_t shuffles = 0;  // and votes, of a warp
  uint64_t atomics = 0;   // of a warp
};
// Summed by kernel, in the order of first launch.
std::vector<Counters> counters();

}  // namespace softgpu
