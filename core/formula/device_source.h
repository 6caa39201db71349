// Kernels for GPUs: writes a graph as device source over the vocabulary (core/device/opdock), which
// NVRTC, hipRTC and the software GPU's compiler take. One source serves CUDA and HIP.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "formula/graph.h"

namespace opdock::formula {

// How a kernel goes over its space, and for which layouts it is made. Kernels of formulas without
// reductions have a vector of elements a thread; the others have a row a team of threads.
struct DeviceShape {
  int dims = 0;  // of the rows
  // Whether rows, vectors and the places of elements are counted in 64 bits.
  bool is_wide = false;
  // Whether all tensors are read and written by whole, aligned vectors: launch_is_even().
  bool is_even = false;
  // The inputs that have one element for a whole row, although their last dimension does not say so
  // in all calls: bit i is input i.
  uint64_t repeated = 0;
  // The inputs, by the same bits, whose adjacent elements are those of the last dimension of the
  // rows: a block transposes tiles of them. Only without reductions.
  uint64_t transposed = 0;
  // Reductions: whether a row's team is a block or a warp, and how many vectors each of its threads
  // holds in registers. 0: none, each pass reads the row again.
  bool is_block = false;
  int held = 0;
  // How many blocks, of a cluster, share a row that is held: a power of two.
  int cluster = 1;
  // The most threads that a block has; a power of two.
  int threads = 128;
  // Whether each row has a vector for each that a thread holds, and each block `threads` threads.
  bool is_full = false;

  friend bool operator==(const DeviceShape&, const DeviceShape&) = default;
};

// Rows and columns of a tile, and the threads of its block.
inline constexpr int kTile = 64, kTileThreads = 256;

// The longest block of any kernel, in threads.
inline constexpr int kMaxThreads = 1024;
inline constexpr int kElementThreads = 512;

// Returns how many elements a thread loads and stores at once: as many of the largest type as have
// 16 bytes, at least 2. repeated: DeviceShape::repeated.
int vector_elements(const Graph& graph, uint64_t repeated);

// Returns whether a thread that holds part of a row holds this input too, from the first pass on.
// An input that is the same in all rows stays in the cache, and is read when it is needed.
bool is_held(const Graph& graph, size_t input, uint64_t repeated);

// Returns how often the blocks of a cluster that shares a row exchange numbers: once for each
// reduction, or twice for one that finds a column.
int exchanges(const Graph& graph);

// Returns the source of one kernel, opdock::formula::kernel, for that shape. Its parameter is
// described in device_launch.h. Names in it come from the formula. The graph is simplified.
std::string device_source(const Graph& graph, const DeviceShape& shape);

// Returns the same kernel as a template, opdock::formula::NAME<0>, so that the sources of many make
// one translation unit, in which only those that are asked for cost time.
std::string device_template(const Graph& graph, const DeviceShape& shape, const std::string& name);

// Returns the source of opdock::formula::sums, which adds up the partial sums that the kernel of a
// graph with sums over rows has left.
std::string device_sums_source(const Graph& graph);

// Returns the same kernel as device_template() does, opdock::formula::NAME<0>.
std::string device_sums_template(const Graph& graph, const std::string& name);

}  // namespace opdock::formula
