// What a compiled kernel library and the engine know of each other. compile_kernels() gives this
// file to the compiler too, so it includes nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace softgpu {

using Word = unsigned long;

// Each thread of a block is a fiber with memory of its own: kLaneBytes at a multiple of kLaneBytes,
// LaneView near the end, the stack growing down from there. So both are found from any frame's
// address.
constexpr Word kLaneBytes = 256 * 1024;
constexpr Word kLaneRoom = 512;  // from LaneView on, for what the engine has there
constexpr Word kLaneLine = 64, kLaneLines = 64;

// What a kernel reads of its thread. Dimensions are x, y, z.
struct LaneView {
  unsigned thread[3];
  unsigned threads[3];  // of the block
  unsigned block[3];
  unsigned blocks[3];  // of the grid
  unsigned lane;       // in the warp
  unsigned cluster_rank;
  unsigned cluster_size;  // blocks
  Word* steps_left;       // of the block, for all its threads
};

// What describes the thread in whose memory `address` is: in each of kLaneLines neighbours in
// another line of its page, since a CPU's first cache holds only a few lines that lie at the same
// place in a page, and all threads of a block take turns.
inline __attribute__((always_inline)) LaneView* lane_of(Word address) {
  const Word number = address / kLaneBytes;
  return reinterpret_cast<LaneView*>((number + 1) * kLaneBytes - kLaneRoom -
                                     number % kLaneLines * kLaneLine);
}

inline __attribute__((always_inline)) LaneView* this_lane() {
  return lane_of(reinterpret_cast<Word>(__builtin_frame_address(0)));
}

// What the lanes of a warp do together.
enum class WarpOp : unsigned {
  kBarrier,
  kShuffle,  // the argument: a lane
  kShuffleXor,
  kShuffleUp,
  kShuffleDown,
  kAny,
  kAll,
  kBallot,
};

enum class AtomicOp : unsigned {
  kAdd,
  kAddFloat,
  kMax,  // of signed numbers, as kMin
  kMin,
  kExchange,
  kCompareAndSwap,  // the second operand is what is expected
};

// How an access to memory is meant.
constexpr unsigned kWrite = 1;
constexpr unsigned kAnyAlignment = 2;

// The engine's functions. `pc` is the kernel's instruction after the call, for source lines.
struct Hooks {
  void (*access)(LaneView*, const void* address, Word bytes, unsigned how, const void* pc);
  void (*block_barrier)(LaneView*, const void* pc);
  void (*cluster_barrier)(LaneView*, const void* pc);
  unsigned long long (*warp)(LaneView*, WarpOp, unsigned long long value, int argument,
                             const void* pc);
  // Shared memory of the block that belongs to a site of the source; uninitialised.
  void* (*shared)(LaneView*, const void* site, Word bytes, Word alignment, const void* pc);
  void* (*dynamic_shared)(LaneView*);
  // Where another block of the cluster has what lies at `address` in this one's shared memory.
  void* (*cluster_shared)(LaneView*, const void* address, unsigned rank, const void* pc);
  unsigned long long (*atomic)(LaneView*, AtomicOp, void* address, unsigned bytes,
                               unsigned long long value, unsigned long long expected,
                               const void* pc);
  void (*fence)(LaneView*, const void* pc);
  void (*copy_async)(LaneView*, void* to, const void* from, const void* pc);
  void (*copy_commit)(LaneView*, const void* pc);
  void (*copy_wait)(LaneView*, unsigned left, const void* pc);  // until so many groups are left
  void (*trap)(LaneView*, const void* pc);
  void (*launch_wait)(LaneView*, const void* pc);
  void (*out_of_steps)(LaneView*, const void* pc);  // never returns, as the next
  void (*bad_conversion)(LaneView*, const void* pc);
  void (*bad_division)(LaneView*, bool by_zero, const void* pc);
};

// What a parameter is to the memory behind it.
enum class ParamKind : unsigned char {
  kOther,     // a number, or a struct that may have pointers
  kPointer,   // to what the kernel may write
  kConst,     // to what it only reads
  kPointers,  // to other pointers
};

struct KernelEntry {
  const char* expression;
  const void* (*function)();         // whose symbol is the name in the image
  void (*run)(void* const* params);  // calls it with copies of the parameters
  const unsigned* param_sizes;
  const ParamKind* param_kinds;
  unsigned params;
};

// What a library exports as softgpu_module.
struct Module {
  unsigned version;  // kModuleVersion
  unsigned warp_size;
  const KernelEntry* kernels;
  unsigned kernel_count;
  const Hooks** hooks;  // the engine sets it when it opens the library
};
constexpr unsigned kModuleVersion = 3;

}  // namespace softgpu
