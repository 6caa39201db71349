// Kernels for GPUs: writes a graph as device source over the vocabulary (core/device/opdock), which
// NVRTC, hipRTC and the software GPU's compiler take. One source serves CUDA and HIP.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "formula/graph.h"

namespace opdock::formula {

// How a kernel goes over its space. Kernels of formulas without reductions have a vector of
// elements a thread; the others have a row a team of threads.
struct DeviceShape {
  int dims = 0;  // of the rows
  // Whether rows and vectors are counted in 64 bits.
  bool is_wide = false;
  // Reductions: whether a row's team is a block or a warp, and how many vectors each of its threads
  // holds in registers. 0: none, each pass reads the row again.
  bool is_block = false;
  int held = 0;
};

// The longest block of any kernel, in threads.
inline constexpr int kMaxThreads = 1024;
inline constexpr int kElementThreads = 256;

// Returns how many elements a thread loads and stores at once: as many of the smallest type as have
// 16 bytes, at most 8.
int vector_elements(const Graph& graph);

// Returns the source of one kernel, opdock::formula::kernel, for that shape. Its parameter is
// described in device_launch.h. Names in it come from the formula. The graph is simplified.
std::string device_source(const Graph& graph, const DeviceShape& shape);

}  // namespace opdock::formula
