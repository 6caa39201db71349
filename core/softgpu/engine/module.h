// The interface between a compiled kernel library and the engine. compile_kernels() also passes
// this file to the compiler, so it includes nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace softgpu {

using Word = unsigned long;

// Each thread of a block is a fiber with its own memory: kLaneBytes at a multiple of kLaneBytes,
// with LaneView near the end and the stack growing down from there. Both can therefore be found
// from the address of any frame.
constexpr Word kLaneBytes = 256 * 1024;
constexpr Word kLaneRoom = 512;  // bytes from LaneView on, for the engine's own struct
constexpr Word kLaneLine = 64, kLaneLines = 64;

// The part of a thread's state that kernels read. Dimensions are x, y, z.
struct LaneView {
  unsigned thread[3];
  unsigned threads[3];  // of the block
  unsigned block[3];
  unsigned blocks[3];  // of the grid
  unsigned lane;       // in the warp
  unsigned cluster_rank;
  unsigned cluster_size;  // blocks
  Word* steps_left;       // of the block, shared by all its threads
};

// Returns the view of the thread whose memory contains `address`. Each of kLaneLines neighbouring
// threads has its view in a different cache line of its page, because a CPU's L1 cache holds only a
// few lines with the same offset in a page, and the threads of a block run in turn.
inline __attribute__((always_inline)) LaneView* lane_of(Word address) {
  const Word number = address / kLaneBytes;
  return reinterpret_cast<LaneView*>((number + 1) * kLaneBytes - kLaneRoom -
                                     number % kLaneLines * kLaneLine);
}

inline __attribute__((always_inline)) LaneView* this_lane() {
  return lane_of(reinterpret_cast<Word>(__builtin_frame_address(0)));
}

// Operations that the lanes of a warp execute together.
enum class WarpOp : unsigned {
  kBarrier,
  kShuffle,  // the argument is a lane
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
  kMax,  // signed, as for kMin
  kMin,
  kExchange,
  kCompareAndSwap,  // the second operand is the expected value
};

// Flags of an access to memory.
constexpr unsigned kWrite = 1;
constexpr unsigned kAnyAlignment = 2;

// The engine's functions. `pc` is the kernel's instruction after the call, used for source lines.
struct Hooks {
  void (*access)(LaneView*, const void* address, Word bytes, unsigned how, const void* pc);
  void (*block_barrier)(LaneView*, const void* pc);
  void (*cluster_barrier)(LaneView*, const void* pc);
  unsigned long long (*warp)(LaneView*, WarpOp, unsigned long long value, int argument,
                             const void* pc);
  // Returns the block's shared memory for a declaration in the source (`site`); uninitialised.
  void* (*shared)(LaneView*, const void* site, Word bytes, Word alignment, const void* pc);
  void* (*dynamic_shared)(LaneView*);
  // Returns where another block of the cluster has the variable at `address` in this block's shared
  // memory.
  void* (*cluster_shared)(LaneView*, const void* address, unsigned rank, const void* pc);
  unsigned long long (*atomic)(LaneView*, AtomicOp, void* address, unsigned bytes,
                               unsigned long long value, unsigned long long expected,
                               const void* pc);
  void (*fence)(LaneView*, const void* pc);
  void (*copy_async)(LaneView*, void* to, const void* from, const void* pc);
  void (*copy_commit)(LaneView*, const void* pc);
  void (*copy_wait)(LaneView*, unsigned left, const void* pc);  // until `left` groups remain
  void (*trap)(LaneView*, const void* pc);
  void (*launch_wait)(LaneView*, const void* pc);
  void (*out_of_steps)(LaneView*, const void* pc);  // does not return, and neither do the next two
  void (*bad_conversion)(LaneView*, const void* pc);
  void (*bad_division)(LaneView*, bool by_zero, const void* pc);
};

// How a kernel uses the memory behind a parameter.
enum class ParamKind : unsigned char {
  kOther,     // a number, or a struct that may contain pointers
  kPointer,   // to memory that the kernel may write
  kConst,     // to memory that the kernel only reads
  kPointers,  // to other pointers
};

struct KernelEntry {
  const char* expression;
  const void* (*function)();         // the symbol of the returned function is the name in the image
  void (*run)(void* const* params);  // calls the kernel with copies of the parameters
  const unsigned* param_sizes;
  const ParamKind* param_kinds;
  unsigned params;
};

// The table that a library exports as softgpu_module.
struct Module {
  unsigned version;  // kModuleVersion
  unsigned warp_size;
  const KernelEntry* kernels;
  unsigned kernel_count;
  const Hooks** hooks;  // the engine sets it when it opens the library
};
constexpr unsigned kModuleVersion = 3;

}  // namespace softgpu
