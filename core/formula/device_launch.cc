// SPDX-License-Identifier: Apache-2.0
#include "formula/device_launch.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

namespace opdock::formula {
namespace {

constexpr size_t kMaxParameter = 4096;  // bytes, of all kernels' parameters on any GPU
constexpr int64_t kMost = int64_t{1} << 31;

// Rows of at most this many vectors for each of a warp's threads are a warp's.
constexpr int kMaxWarpVectors = 4;
constexpr int kMaxHeld = 8;
// Held elements in registers, of all inputs together.
constexpr int kMaxHeldBytes = 512;

int64_t slots_of(const Graph& graph, const Space& space) {
  const int64_t vector = vector_elements(graph);
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

// The bytes of registers that one held vector takes in a thread.
int bytes_of_vector(const Graph& graph) {
  int bytes = 0;
  for (const Input& input : graph.inputs())
    if (input.has_columns()) bytes += vector_elements(graph) * size_of(input.type);
  return std::max(bytes, 1);
}

void plan_rows(const Graph& graph, const Space& space, const DeviceTraits& traits,
               DeviceLaunch* launch) {
  const int64_t slots = slots_of(graph, space);
  const int most = std::min(kMaxHeld, std::max(1, kMaxHeldBytes / bytes_of_vector(graph)));
  const auto fewest = [&](int64_t threads) {
    return std::bit_ceil(static_cast<uint64_t>((slots + threads - 1) / threads));
  };
  if (fewest(traits.warp_size) <= static_cast<uint64_t>(std::min(most, kMaxWarpVectors))) {
    launch->shape.held = static_cast<int>(fewest(traits.warp_size));
    launch->threads = 128;
    const int64_t teams = launch->threads / traits.warp_size;
    set_grid((space.rows + teams - 1) / teams, launch);
    return;
  }
  launch->shape.is_block = true;
  // The fewest threads that hold the row, but enough of them to hide latency.
  int64_t threads = std::clamp<int64_t>(round_up((slots + 3) / 4, traits.warp_size), 128, 512);
  if (fewest(threads) > static_cast<uint64_t>(most))
    threads = std::min<int64_t>(traits.max_threads, 1024);
  const uint64_t held = fewest(threads);
  launch->shape.held = held <= static_cast<uint64_t>(most) ? static_cast<int>(held) : 0;
  if (launch->shape.held == 0) threads = std::min<int64_t>(traits.max_threads, 512);
  launch->threads = static_cast<uint32_t>(threads);
  set_grid(space.rows, launch);
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

}  // namespace

DeviceLaunch plan_launch(const Graph& graph, const Space& space, const DeviceTraits& traits) {
  DeviceLaunch launch;
  launch.shape.dims = space.ndim;
  const int64_t slots = slots_of(graph, space);
  launch.shape.is_wide = space.rows >= kMost || slots >= kMost || space.rows * slots >= kMost;
  if (graph.has_reductions()) {
    launch.shape.is_wide = space.rows >= kMost;
    plan_rows(graph, space, traits, &launch);
    return launch;
  }
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
                                        void* const* results, const Value* scalars) {
  const size_t num_inputs = space.inputs.size(), tensors = num_inputs + space.results.size();
  const auto steps = [&](size_t t) -> const Steps& {
    return t < num_inputs ? space.inputs[t] : space.results[t - num_inputs];
  };
  const auto type = [&](size_t t) {
    return t < num_inputs ? graph.inputs()[t].type : graph[graph.results()[t - num_inputs]].type;
  };
  const auto dims = static_cast<size_t>(space.ndim);
  const int64_t vector = vector_elements(graph);
  std::vector<uint64_t> words;
  // Whether vectors of a tensor with a step of 1 are aligned in all rows.
  bool whole = true;
  for (size_t t = 0; t < tensors; ++t) {
    const auto address =
        reinterpret_cast<uintptr_t>(t < num_inputs ? inputs[t] : results[t - num_inputs]);
    words.push_back(address);
    if (steps(t).column != 1) continue;
    const auto size = static_cast<uint64_t>(size_of(type(t)));
    const uint64_t unit = std::min<uint64_t>(16, static_cast<uint64_t>(vector) * size);
    uint64_t bits = address;
    for (size_t d = 0; d < dims; ++d) bits |= static_cast<uint64_t>(steps(t).stride[d]) * size;
    whole = whole && bits % unit == 0;
  }
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
  words.push_back(whole ? 1 : 0);
  for (size_t i = 0; i < graph.scalars().size(); ++i)
    words.push_back(graph.scalars()[i].type == Type::kFloat64
                        ? std::bit_cast<uint64_t>(scalars[i].real)
                        : static_cast<uint64_t>(scalars[i].integer));
  if (words.size() * sizeof words[0] > kMaxParameter)
    throw Error("found " + std::to_string(tensors) + " tensors in " + std::to_string(dims) +
                " dimensions, wanted fewer of one of them for a GPU; make the tensors contiguous");
  return words;
}

}  // namespace opdock::formula
