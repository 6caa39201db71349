// How the kernel of a graph is launched: which one, with how many threads, and its parameter.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "formula/device_source.h"
#include "formula/graph.h"
#include "formula/space.h"

namespace opdock::formula {

// Part of the names of kernels that are built ahead, so that none of another layout is launched:
// raised whenever FormulaSpace, launch_parameters() or the threads that a kernel expects change.
inline constexpr int kParameterLayout = 1;

// The properties of a GPU on which a launch depends.
struct DeviceTraits {
  int64_t multiprocessors = 1;
  int64_t warp_size = 32;
  int64_t max_threads = 1024;     // of a block
  int64_t element_threads = 256;  // of a block of a large elementwise launch
  bool has_clusters = false;      // blocks that exchange numbers, from sm_90 on
};

struct DeviceLaunch {
  DeviceShape shape;  // which kernel
  std::array<uint32_t, 3> grid{1, 1, 1};
  uint32_t threads = 1;
  // Sums over rows: the rows of a chunk, how many neighbours among a block's threads share a row
  // (in a kernel without reductions), and how many partial sums a column and a total have.
  int64_t rows_of_chunk = 0, lanes = 1;
  int64_t parts = 0, total_parts = 0;
};

// The launch of the kernel that adds up partial sums (device_sums_source()).
struct SumsLaunch {
  std::array<uint32_t, 3> grid{1, 1, 1};
  uint32_t threads = 1;
  std::vector<uint64_t> words;  // its parameter, PartialSums (opdock/formula_space.cuh)
};

// Returns whether every tensor of the space that has columns is read or written by whole vectors of
// adjacent, aligned elements, or is an input with one element for a whole row or a transposed one.
// inputs, results: the tensors' first elements.
bool launch_is_even(const Graph& graph, const Space& space, void* const* inputs,
                    void* const* results);

// Returns the launch for a space with elements. is_even: launch_is_even() of its tensors.
DeviceLaunch plan_launch(const Graph& graph, const Space& space, const DeviceTraits& traits,
                         bool is_even);

inline constexpr size_t kMaxParameter = 4096;  // bytes, of a kernel on any GPU

// Returns the word of a scalar in a kernel's parameter. type: of the graph's scalar.
inline uint64_t scalar_word(Type type, const Value& value) {
  return type == Type::kFloat64 ? std::bit_cast<uint64_t>(value.real)
                                : static_cast<uint64_t>(value.integer);
}

// launch_parameters() depends on the tensors' addresses in two ways only: it contains them, and the
// rest follows from their remainders by this number.
inline constexpr uint64_t kAddressUnit = 16;

// Returns the kernel's parameter, a struct by value, as words: FormulaSpace
// (opdock/formula_space.cuh), which begins with the addresses of the inputs and the results, then
// the scalars, and for sums over rows the rows of a chunk and the lanes. inputs, results: the
// tensors' first elements; of a sum, where its partial sums go. Throws Error if it would be larger
// than a kernel's parameter may be.
std::vector<uint64_t> launch_parameters(const Graph& graph, const Space& space, void* const* inputs,
                                        void* const* results, const Value* scalars,
                                        const DeviceLaunch& launch = {});

// Returns where the partial sums of each result begin, in bytes, and as the last element the size
// of all. A result that is not summed has none.
std::vector<int64_t> places_of_partial_sums(const Graph& graph, const Space& space,
                                            const DeviceLaunch& launch);

// Returns the second launch of a graph with sums, after that of `launch` unless the space has no
// elements: then the sums are 0. partial: where the partial sums of all results begin.
SumsLaunch plan_sums(const Graph& graph, const Space& space, const DeviceLaunch& launch,
                     void* partial, void* const* results);

}  // namespace opdock::formula
