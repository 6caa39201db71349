// SPDX-License-Identifier: Apache-2.0
#include "formula/device_launch.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string>

#include "opdock/columns.cuh"

namespace opdock::formula {
namespace {

constexpr int64_t kMost = int64_t{1} << 31;

// Rows of at most this many vectors for each of a warp's threads are a warp's.
constexpr int kMaxWarpVectors = 2;
// Vectors that a thread holds, at most.
constexpr int kMaxHeld = 8;
// 32-bit registers in which a thread holds elements, at most: in a block of up to 512 threads, and
// in a larger one, whose threads have 64 registers each.
constexpr int kHeldRegisters = 64, kHeldRegistersOfLargeBlock = 32;
// Rows of at most this many vectors have one block each. If a longer row's block had more threads
// than kMaxOwnThreads, or its threads held more than kHeldRegistersOfLargeBlock, it would have a
// multiprocessor almost for itself, which then waits for the block's loads; among several small
// blocks of clusters some do not wait.
constexpr int64_t kLeastClusterVectors = 2048, kMaxOwnThreads = 512;
// Threads of a block in a cluster; more if kMaxCluster such blocks cannot hold the row.
constexpr int64_t kClusterThreads = 256;
// Exchanges among the blocks of a cluster, each of which has memory of its own.
constexpr int kMaxExchanges = 16;

// DeviceShape::repeated.
uint64_t repeated_inputs(const Graph& graph, const Space& space) {
  uint64_t bits = 0;
  for (size_t i = 0; i < space.inputs.size() && i < 64; ++i)
    if (graph.inputs()[i].has_columns() && space.inputs[i].column == 0) bits |= uint64_t{1} << i;
  return bits;
}

// DeviceShape::transposed.
uint64_t transposed_inputs(const Graph& graph, const Space& space) {
  constexpr int64_t kLeast = 16;  // rows and columns that make a tile worth while
  constexpr int kMaxShared = 40 << 10;
  if (graph.has_reductions() || graph.has_sums()) return 0;
  if (space.ndim == 0 || space.columns < kLeast) return 0;
  const auto last = static_cast<size_t>(space.ndim - 1);
  if (space.size[last] < kLeast) return 0;
  uint64_t bits = 0;
  int bytes = 0;  // of all tiles, with some room between their rows
  for (size_t i = 0; i < space.inputs.size() && i < 64; ++i) {
    const int more = (kTile + 2) * kTile * size_of(graph.inputs()[i].type);
    if (!graph.inputs()[i].has_columns() || space.inputs[i].stride[last] != 1) continue;
    if (std::abs(space.inputs[i].column) < 2 || bytes + more > kMaxShared) continue;
    bits |= uint64_t{1} << i;
    bytes += more;
  }
  return bits;
}

int64_t vector_of(const Graph& graph, const Space& space) {
  return vector_elements(graph, repeated_inputs(graph, space));
}

int64_t slots_of(const Graph& graph, const Space& space) {
  const int64_t vector = vector_of(graph, space);
  return std::max<int64_t>((space.columns + vector - 1) / vector, 1);
}

int64_t round_up(int64_t count, int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

void set_grid(int64_t blocks, DeviceLaunch* launch) {
  // More blocks than one dimension has are spread over two.
  const int64_t width = std::min<int64_t>(blocks, int64_t{1} << 30);
  launch->grid[0] = static_cast<uint32_t>(width);
  launch->grid[1] = static_cast<uint32_t>((blocks + width - 1) / width);
}

// Sums are added up in the type that is computed with.
int size_of_sum(const Graph& graph, size_t result) {
  return size_of(compute_type(graph[graph.results()[result]].type));
}

// The registers that one held vector takes in a thread, with the sums of its columns.
int registers_of_vector(const Graph& graph, uint64_t repeated) {
  int bytes = 0;
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    if (is_held(graph, i, repeated))
      bytes += vector_elements(graph, repeated) * size_of(graph.inputs()[i].type);
  for (size_t i = 0; i < graph.results().size(); ++i)
    if (graph.output(i) == Output::kColumnSums)
      bytes += vector_elements(graph, repeated) * size_of_sum(graph, i);
  return std::max(bytes / 4, 1);
}

// Returns how many vectors a thread should hold of rows of that many (measured on an H200, where a
// row of up to 4 KiB does best with 2, one of up to 32 KiB with 4, and a longer one with 8); 0 if a
// block cannot hold them. registers: registers_of_vector(). has_beside: whether tensors that are
// the same in all rows are read next to each row; without, 2 do best up to 16 KiB.
int held_vectors(int registers, bool has_beside, int64_t slots, int64_t max_threads) {
  int held = slots <= (has_beside ? 256 : 1024) ? 2 : slots <= 2048 ? 4 : kMaxHeld;
  while (held > 1 && held * registers > kHeldRegisters) held /= 2;
  for (; held <= kMaxHeld && held * registers <= kHeldRegisters; held *= 2) {
    const bool is_large = slots > 512 * held;
    if (slots <= max_threads * held &&
        (!is_large || held * registers <= kHeldRegistersOfLargeBlock))
      return held;
  }
  return 0;
}

// Lets a cluster of blocks share each row, if that is faster than the one block that `launch` has
// so far, whose threads hold launch->shape.held vectors of the row.
void spread_over_cluster(const Graph& graph, const DeviceTraits& traits, int64_t slots,
                         int registers, DeviceLaunch* launch) {
  const int64_t held_now = launch->shape.held;
  if (!traits.has_clusters || graph.has_sums() || exchanges(graph) > kMaxExchanges) return;
  if (slots <= kLeastClusterVectors) return;
  if (held_now != 0 && launch->threads <= kMaxOwnThreads &&
      held_now * registers <= kHeldRegistersOfLargeBlock)
    return;
  // Few registers and small blocks come first: more blocks are then resident.
  struct Way {
    int registers;
    int64_t cluster, threads;
  };
  constexpr Way kWays[] = {{kHeldRegistersOfLargeBlock, 4, kClusterThreads},
                           {kHeldRegisters, 4, kClusterThreads},
                           {kHeldRegistersOfLargeBlock, kMaxCluster, kClusterThreads},
                           {kHeldRegisters, kMaxCluster, kClusterThreads},
                           {kHeldRegistersOfLargeBlock, kMaxCluster, 1024},
                           {kHeldRegisters, kMaxCluster, 512}};
  for (const Way& way : kWays) {
    int held = kMaxHeld;
    while (held > 1 && held * registers > way.registers) held /= 2;
    if (held * registers > way.registers || slots > held * way.cluster * way.threads) continue;
    int64_t cluster = 2;
    while (cluster < way.cluster && slots > held * cluster * kClusterThreads) cluster *= 2;
    launch->shape.held = held;
    launch->shape.cluster = static_cast<int>(cluster);
    const int64_t threads = (slots + held * cluster - 1) / (held * cluster);
    launch->threads = static_cast<uint32_t>(round_up(threads, traits.warp_size));
    return;
  }
}

// Returns how many teams of threads a kernel with reductions has: one for each row or, with sums
// over rows, for each chunk of rows. Chunks are long, so that their sums are few beside the
// elements, but there are enough of them for a GPU.
int64_t teams_of(const Graph& graph, const Space& space, DeviceLaunch* launch) {
  if (!graph.has_sums()) return space.rows;
  int64_t& rows = launch->rows_of_chunk;
  rows = 128;
  while (rows > 8 && space.rows < 1024 * rows) rows /= 2;
  while (space.rows > 4096 * rows) rows *= 2;
  launch->parts = launch->total_parts = (space.rows + rows - 1) / rows;
  return std::max<int64_t>(launch->parts, 1);
}

// An elementwise kernel with sums over rows.
void plan_element_chunks(const Space& space, int64_t slots, DeviceLaunch* launch) {
  const ColumnChunks chunks = column_chunks(space.rows, space.columns);
  launch->rows_of_chunk = chunks.rows;
  while (launch->lanes < std::min<int64_t>(slots, kColumnLanes)) launch->lanes *= 2;
  launch->threads = kColumnThreads;
  launch->shape.threads = kColumnThreads;
  const int64_t tiles = (slots + launch->lanes - 1) / launch->lanes;
  if (tiles >= kMost)
    throw Error("found " + std::to_string(space.columns) +
                " columns, wanted fewer for one launch; pass a part of the tensors at a time");
  launch->grid[0] = static_cast<uint32_t>(tiles);
  launch->grid[1] = static_cast<uint32_t>(chunks.count);
  launch->parts = chunks.count;
  launch->total_parts = chunks.count * tiles;
}

void plan_rows(const Graph& graph, const Space& space, const DeviceTraits& traits,
               DeviceLaunch* launch) {
  const int64_t slots = slots_of(graph, space), warp = traits.warp_size;
  DeviceShape& shape = launch->shape;
  const int registers = registers_of_vector(graph, shape.repeated);
  for (int held = 1; held <= kMaxWarpVectors && held * registers <= kHeldRegisters; held *= 2) {
    if (slots > warp * held) continue;
    shape.held = held;
    shape.threads = 128;
    shape.is_full = slots == warp * held;
    launch->threads = 128;
    const int64_t teams = launch->threads / warp;
    set_grid((teams_of(graph, space, launch) + teams - 1) / teams, launch);
    return;
  }
  shape.is_block = true;
  const int64_t max_threads = std::min<int64_t>(traits.max_threads, kMaxThreads);
  bool has_beside = false;
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    has_beside = has_beside || (graph.inputs()[i].has_columns() && !is_held(graph, i, 0));
  shape.held = held_vectors(registers, has_beside, slots, max_threads);
  launch->threads = static_cast<uint32_t>(
      shape.held == 0 ? std::min<int64_t>(max_threads, 512)
                      : std::max(round_up((slots + shape.held - 1) / shape.held, warp), warp));
  spread_over_cluster(graph, traits, slots, registers, launch);
  shape.threads = static_cast<int>(std::bit_ceil(launch->threads));
  shape.is_full = shape.held != 0 && launch->threads == static_cast<uint32_t>(shape.threads) &&
                  slots == int64_t{launch->threads} * shape.held * shape.cluster;
  set_grid(teams_of(graph, space, launch) * shape.cluster, launch);
}

struct Divisor {
  int64_t divisor;
  uint32_t factor;
  int32_t shift;
};

// n / divisor is n * factor / 2^32 >> shift for n below 2^31.
Divisor divisor_of(int64_t divisor) {
  Divisor made = {divisor, 0, 0};
  if (divisor < 2 || divisor >= kMost) return made;
  const auto number = static_cast<uint64_t>(divisor);
  made.shift = static_cast<int>(std::bit_width(number)) - 1;
  if (std::has_single_bit(number)) --made.shift;
  made.factor = static_cast<uint32_t>(((uint64_t{1} << (32 + made.shift)) + number - 1) / number);
  return made;
}

void append(const Divisor& divisor, std::vector<uint64_t>* words) {
  words->push_back(static_cast<uint64_t>(divisor.divisor));
  words->push_back(divisor.factor | static_cast<uint64_t>(static_cast<uint32_t>(divisor.shift))
                                        << 32);
}

// Whether the places of all elements, and of those of the vectors behind a row's end, have 31 bits.
bool is_near(const Space& space) {
  const auto steps_are_near = [&](const Steps& steps) {
    // Sizes and strides are those of tensors in memory, so that no product exceeds 2^64. A vector
    // may reach 8 elements behind a row.
    uint64_t most =
        static_cast<uint64_t>(space.columns + 8) * static_cast<uint64_t>(std::abs(steps.column));
    for (int d = 0; d < space.ndim; ++d) {
      const auto at = static_cast<size_t>(d);
      most +=
          static_cast<uint64_t>(space.size[at]) * static_cast<uint64_t>(std::abs(steps.stride[at]));
    }
    return most < static_cast<uint64_t>(kMost);
  };
  return std::all_of(space.inputs.begin(), space.inputs.end(), steps_are_near) &&
         std::all_of(space.results.begin(), space.results.end(), steps_are_near);
}

// Calls f(address, type, steps, is_sum) for each tensor, the inputs first.
template <class F>
void for_each_tensor(const Graph& graph, const Space& space, void* const* inputs,
                     void* const* results, const F& f) {
  for (size_t i = 0; i < space.inputs.size(); ++i)
    f(inputs[i], graph.inputs()[i].type, space.inputs[i], false);
  for (size_t i = 0; i < space.results.size(); ++i)
    f(results[i], graph[graph.results()[i]].type, space.results[i], is_sum(graph.output(i)));
}

// Whether all vectors of the tensors with a step of 1 that are whole are aligned too.
bool is_aligned(const Graph& graph, const Space& space, void* const* inputs, void* const* results) {
  bool aligned = true;
  for_each_tensor(graph, space, inputs, results,
                  [&](const void* data, Type type, const Steps& steps, bool is_sum) {
                    if (steps.column != 1 || is_sum) return;
                    const auto size = static_cast<uint64_t>(size_of(type));
                    const auto vector = static_cast<uint64_t>(vector_of(graph, space));
                    const uint64_t unit = std::min<uint64_t>(kAddressUnit, vector * size);
                    uint64_t bits = reinterpret_cast<uintptr_t>(data);
                    for (size_t d = 0; d < static_cast<size_t>(space.ndim); ++d)
                      bits |= static_cast<uint64_t>(steps.stride[d]) * size;
                    aligned = aligned && bits % unit == 0;
                  });
  return aligned;
}

}  // namespace

bool launch_is_even(const Graph& graph, const Space& space, void* const* inputs,
                    void* const* results) {
  if (space.columns % vector_of(graph, space) != 0) return false;
  const uint64_t transposed = transposed_inputs(graph, space);
  for (size_t i = 0; i < space.inputs.size(); ++i)
    if (graph.inputs()[i].has_columns() && space.inputs[i].column >> 1 != 0 &&
        (i >= 64 || (transposed >> i & 1) == 0))
      return false;
  for (size_t i = 0; i < space.results.size(); ++i)
    if (graph.has_columns(i) && !is_sum(graph.output(i)) && space.results[i].column != 1)
      return false;
  return is_aligned(graph, space, inputs, results);
}

DeviceLaunch plan_launch(const Graph& graph, const Space& space, const DeviceTraits& traits,
                         bool is_even) {
  DeviceLaunch launch;
  launch.shape.dims = space.ndim;
  launch.shape.is_even = is_even;
  launch.shape.repeated = repeated_inputs(graph, space);
  const int64_t slots = slots_of(graph, space);
  launch.shape.is_wide = space.rows >= kMost || space.rows * slots >= kMost || !is_near(space);
  if (graph.has_reductions()) {
    // A single row has the parameters of rows in one dimension, and needs no kernel of its own.
    launch.shape.dims = std::max(space.ndim, 1);
    plan_rows(graph, space, traits, &launch);
    return launch;
  }
  if (graph.has_sums()) {
    plan_element_chunks(space, slots, &launch);
    return launch;
  }
  if (!launch.shape.is_wide) launch.shape.transposed = transposed_inputs(graph, space);
  if (launch.shape.transposed != 0) {
    launch.shape.threads = kTileThreads;
    launch.threads = kTileThreads;
    const int64_t last = space.size[static_cast<size_t>(space.ndim - 1)];
    set_grid(
        (space.columns + kTile - 1) / kTile * ((last + kTile - 1) / kTile) * (space.rows / last),
        &launch);
    return launch;
  }
  launch.shape.threads = kElementThreads;
  const int64_t vectors = space.rows * slots;
  int64_t threads = traits.element_threads;
  // The blocks of a small launch should be on all multiprocessors.
  while (threads > 64 && vectors < traits.multiprocessors * threads) threads /= 2;
  launch.threads = static_cast<uint32_t>(threads);
  const int64_t blocks = (vectors + threads - 1) / threads;
  if (blocks >= kMost)
    throw Error("found " + std::to_string(space.elements()) +
                " elements, wanted fewer for one launch; pass a part of the tensors at a time");
  launch.grid[0] = static_cast<uint32_t>(blocks);
  return launch;
}

std::vector<uint64_t> launch_parameters(const Graph& graph, const Space& space, void* const* inputs,
                                        void* const* results, const Value* scalars,
                                        const DeviceLaunch& launch) {
  const size_t num_inputs = space.inputs.size(), tensors = num_inputs + space.results.size();
  const auto steps = [&](size_t t) -> const Steps& {
    return t < num_inputs ? space.inputs[t] : space.results[t - num_inputs];
  };
  const auto dims = static_cast<size_t>(space.ndim);
  std::vector<uint64_t> words;
  for_each_tensor(graph, space, inputs, results, [&](const void* data, Type, const Steps&, bool) {
    words.push_back(reinterpret_cast<uintptr_t>(data));
  });
  for (size_t t = 0; t < tensors; ++t) words.push_back(static_cast<uint64_t>(steps(t).column));
  for (size_t t = 0; t < tensors; ++t) {
    for (size_t d = 0; d < dims; ++d) words.push_back(static_cast<uint64_t>(steps(t).stride[d]));
    if (dims == 0) words.push_back(0);
  }
  for (size_t d = 0; d < dims; ++d) append(divisor_of(space.size[d]), &words);
  if (dims == 0) append(divisor_of(1), &words);
  append(divisor_of(slots_of(graph, space)), &words);
  words.push_back(static_cast<uint64_t>(space.rows));
  words.push_back(static_cast<uint64_t>(space.columns));
  words.push_back(is_aligned(graph, space, inputs, results) ? 1 : 0);
  for (size_t i = 0; i < graph.scalars().size(); ++i)
    words.push_back(scalar_word(graph.scalars()[i].type, scalars[i]));
  if (graph.has_sums()) {
    words.push_back(static_cast<uint64_t>(launch.rows_of_chunk));
    words.push_back(static_cast<uint64_t>(launch.lanes));
  }
  if (words.size() * sizeof words[0] > kMaxParameter)
    throw Error("found " + std::to_string(tensors) + " tensors in " + std::to_string(dims) +
                " dimensions, wanted fewer of one of them for a GPU; make the tensors contiguous");
  return words;
}

std::vector<int64_t> places_of_partial_sums(const Graph& graph, const Space& space,
                                            const DeviceLaunch& launch) {
  std::vector<int64_t> places = {0};
  for (size_t i = 0; i < graph.results().size(); ++i) {
    const int64_t numbers = graph.output(i) == Output::kColumnSums ? launch.parts * space.columns
                            : graph.output(i) == Output::kTotal    ? launch.total_parts
                                                                   : 0;
    places.push_back(round_up(places.back() + numbers * size_of_sum(graph, i), 16));
  }
  return places;
}

SumsLaunch plan_sums(const Graph& graph, const Space& space, const DeviceLaunch& launch,
                     void* partial, void* const* results) {
  const std::vector<int64_t> places = places_of_partial_sums(graph, space, launch);
  const bool is_empty = space.rows == 0 || (space.columns == 0 && !graph.has_reductions());
  std::vector<uint64_t> from, out, step, columns, parts;
  int64_t most = 1;
  for (size_t i = 0; i < graph.results().size(); ++i) {
    if (!is_sum(graph.output(i))) continue;
    const bool is_total = graph.output(i) == Output::kTotal;
    from.push_back(reinterpret_cast<uintptr_t>(partial) + static_cast<uint64_t>(places[i]));
    out.push_back(reinterpret_cast<uintptr_t>(results[i]));
    step.push_back(is_total ? 0 : static_cast<uint64_t>(space.results[i].column));
    columns.push_back(is_total ? 1 : static_cast<uint64_t>(space.columns));
    const int64_t own = is_total ? launch.total_parts : launch.parts;
    parts.push_back(is_empty ? 0 : static_cast<uint64_t>(own));
    most = std::max(most, is_total ? 1 : space.columns);
  }
  SumsLaunch made;
  made.threads = kTotalThreads;
  made.grid = {static_cast<uint32_t>((most + kTotalColumns - 1) / kTotalColumns),
               static_cast<uint32_t>(from.size()), 1};
  for (const std::vector<uint64_t>* part : {&from, &out, &step, &columns, &parts})
    made.words.insert(made.words.end(), part->begin(), part->end());
  return made;
}

}  // namespace opdock::formula
