// Tests how kernels of formulas are launched: the parameter's words, alignment, which kernel.
// SPDX-License-Identifier: Apache-2.0
#include "formula/device_launch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "opdock/formula_space.cuh"

namespace opdock::formula {
namespace {

struct Call {
  Graph graph;
  Space space;
  void* x = reinterpret_cast<void*>(0x1000);
  void* y = reinterpret_cast<void*>(0x2000);

  // The parameters of "x + 1" on float32, or of "sum(x)" with these strides of x.
  Call(bool reduces, int64_t rows, int64_t columns, int64_t row_step) {
    const Id in = graph.input("x", Type::kFloat32, 2);
    graph.add_result(reduces ? graph.apply(Op::kSum, in)
                             : graph.apply(Op::kAdd, in, graph.constant(1.0)));
    const int64_t shape[] = {rows, columns}, strides[] = {row_step, 1}, plain[] = {columns, 1};
    const int64_t one[] = {1};
    const Operand from = {x, 2, shape, strides};
    const Operand to = {y, reduces ? 1 : 2, shape, reduces ? one : plain};
    space = make_space(graph, {from}, {to});
  }
  DeviceLaunch plan() const { return plan_launch(graph, space, {.multiprocessors = 4}, is_even()); }
  bool is_even() const {
    void* const in[] = {x};
    void* const out[] = {y};
    return launch_is_even(graph, space, in, out);
  }
  // Returns the last of the words: whether whole vectors are aligned.
  uint64_t whole() const {
    void* const in[] = {x};
    void* const out[] = {y};
    return launch_parameters(graph, space, in, out, nullptr).back();
  }
};

TEST(DeviceLaunch, TheParameterIsFormulaSpace) {
  Graph graph;
  const Id x = graph.input("x", Type::kFloat32, 2), s = graph.scalar("s", Type::kFloat64),
           n = graph.scalar("n", Type::kInt64);
  graph.add_result(graph.apply(Op::kAdd, graph.apply(Op::kMul, x, s), n));
  const int64_t shape[] = {3, 5, 7}, from[] = {70, -14, 2}, to[] = {1, 3, 15};
  float memory[2] = {};
  const Operand in = {&memory[0], 3, shape, from}, out = {&memory[1], 3, shape, to};
  const Space space = make_space(graph, {in}, {out});
  void* const inputs[] = {in.data};
  void* const results[] = {out.data};
  const Value scalars[] = {{0.25, 0}, {0, -9}};
  const std::vector<uint64_t> words = launch_parameters(graph, space, inputs, results, scalars);
  ASSERT_EQ(space.ndim, 2);
  using Parameter = FormulaSpace<2, 2>;
  ASSERT_EQ(words.size() * 8, sizeof(Parameter) + 16);
  Parameter p;
  std::memcpy(static_cast<void*>(&p), words.data(), sizeof p);
  EXPECT_EQ(p.data[0], in.data);
  EXPECT_EQ(p.data[1], out.data);
  // The columns are those along which the result is contiguous.
  EXPECT_EQ(p.step[0], 70);
  EXPECT_EQ(p.step[1], 1);
  EXPECT_EQ(p.stride[0][0], 2);
  EXPECT_EQ(p.stride[0][1], -14);
  EXPECT_EQ(p.stride[1][0], 15);
  EXPECT_EQ(p.stride[1][1], 3);
  EXPECT_EQ(p.size[0].divisor, 7);
  EXPECT_EQ(p.size[1].divisor, 5);
  EXPECT_EQ(p.slots.divisor, 1);
  EXPECT_EQ(p.rows, 35);
  EXPECT_EQ(p.columns, 3);
  double number = 0;
  std::memcpy(&number, &words[words.size() - 2], sizeof number);
  EXPECT_EQ(number, 0.25);
  EXPECT_EQ(static_cast<int64_t>(words.back()), -9);
}

TEST(DeviceLaunch, DivisionsAreExact) {
  const uint32_t most = (1u << 31) - 1;
  for (const int64_t divisor : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{641},
                                int64_t{65536}, int64_t{65537}, int64_t{1} << 30,
                                (int64_t{1} << 30) + 1, int64_t{most} - 1, int64_t{most}}) {
    // The rows are of two dimensions, so that the second one is divided by.
    Graph graph;
    const Id x = graph.input("x", Type::kFloat32, 2);
    graph.add_result(graph.apply(Op::kSum, x));
    const int64_t shape[] = {2, divisor, 4}, from[] = {0, 3, 1}, to[] = {1, 2};
    const Operand in = {nullptr, 3, shape, from}, out = {nullptr, 2, shape, to};
    const Space space = make_space(graph, {in}, {out});
    void* const none[] = {nullptr};
    const std::vector<uint64_t> words = launch_parameters(graph, space, none, none, nullptr);
    FastDivisor fast;
    if (divisor == 1) {
      ASSERT_EQ(space.ndim, 1);
    } else {
      ASSERT_EQ(space.ndim, 2);
      FormulaSpace<2, 2> p;
      ASSERT_EQ(words.size() * 8, sizeof p);
      std::memcpy(static_cast<void*>(&p), words.data(), sizeof p);
      fast = p.size[1];
    }
    ASSERT_EQ(fast.divisor, divisor);
    const auto d = static_cast<uint32_t>(divisor);
    std::vector<uint32_t> numbers = {0, 1, d - 1, d, most, most - 1, most / 2};
    for (uint64_t n = d; n <= most; n += std::max<uint64_t>(d, most / 1000)) {
      numbers.push_back(static_cast<uint32_t>(n / d * d));
      numbers.push_back(static_cast<uint32_t>(n / d * d - 1));
    }
    for (const uint32_t n : numbers) ASSERT_EQ(fast.quotient(n), n / d) << n << " / " << d;
  }
}

TEST(DeviceLaunch, WholeVectorsAreAligned) {
  Call call(true, 6, 64, 64);  // vectors of 4 float32
  EXPECT_EQ(call.whole(), 1u);
  call.x = reinterpret_cast<void*>(0x1004);
  EXPECT_EQ(call.whole(), 0u);
  EXPECT_EQ(Call(true, 6, 64, 66).whole(), 0u);
  EXPECT_EQ(Call(true, 6, 64, -64).whole(), 1u);
  EXPECT_EQ(Call(true, 6, 64, -62).whole(), 0u);
  EXPECT_EQ(Call(false, 6, 64, 64).whole(), 1u);
}

TEST(DeviceLaunch, IsEvenIfAllVectorsAreWholeAndAligned) {
  Call call(true, 6, 64, 64);  // vectors of 4 float32
  EXPECT_TRUE(call.is_even());
  call.x = reinterpret_cast<void*>(0x1004);
  EXPECT_FALSE(call.is_even());
  EXPECT_FALSE(Call(true, 6, 62, 64).is_even());
  EXPECT_FALSE(Call(true, 6, 64, 66).is_even());
  EXPECT_TRUE(Call(true, 6, 64, -64).is_even());
  EXPECT_FALSE(Call(false, 3, 21, 24).is_even());
}

// "a + b" on two rows of `columns`, where b has the strides `row` and `column`.
Call sum_with(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  Call call(false, rows, columns, columns);
  Graph& graph = call.graph = Graph();
  graph.add_result(graph.apply(Op::kAdd, graph.input("a", Type::kFloat32, 2),
                               graph.input("b", Type::kFloat32, 2)));
  const int64_t shape[] = {rows, columns}, plain[] = {columns, 1}, strides[] = {row, column};
  call.space = make_space(graph, {{call.x, 2, shape, plain}, {call.y, 2, shape, strides}},
                          {{call.x, 2, shape, plain}});
  return call;
}

TEST(DeviceLaunch, OneElementForARowIsRepeated) {
  const Call call = sum_with(6, 64, 1, 0);
  void* const in[] = {call.x, reinterpret_cast<void*>(0x2004)};
  void* const out[] = {call.x};
  EXPECT_TRUE(launch_is_even(call.graph, call.space, in, out));
  EXPECT_EQ(plan_launch(call.graph, call.space, {}, true).shape.repeated, 2u);
}

TEST(DeviceLaunch, TransposedTensorsAreReadByTiles) {
  const auto plan = [](int64_t rows, int64_t columns) {
    const Call call = sum_with(rows, columns, 1, rows);
    void* const in[] = {call.x, call.y};
    void* const out[] = {call.x};
    return plan_launch(call.graph, call.space, {}, launch_is_even(call.graph, call.space, in, out));
  };
  const DeviceLaunch tiles = plan(100, 128);
  EXPECT_EQ(tiles.shape.transposed, 2u);
  EXPECT_TRUE(tiles.shape.is_even);
  EXPECT_EQ(tiles.grid[0], 4u);
  EXPECT_EQ(tiles.threads, static_cast<uint32_t>(kTileThreads));
  EXPECT_EQ(plan(4, 128).shape.transposed, 0u);
  EXPECT_EQ(plan(100, 8).shape.transposed, 0u);
}

TEST(DeviceLaunch, RowsGetWarpsAndBlocks) {
  const auto plan = [](int64_t columns) { return Call(true, 1000, columns, columns).plan(); };
  // Vectors of 4: a warp holds at most 2 in each of its threads.
  EXPECT_FALSE(plan(1).shape.is_block);
  EXPECT_EQ(plan(1).shape.held, 1);
  EXPECT_EQ(plan(1).grid[0], 250u);
  EXPECT_EQ(plan(129).shape.held, 2);
  EXPECT_FALSE(plan(256).shape.is_block);
  EXPECT_TRUE(plan(256).shape.is_full);
  EXPECT_FALSE(plan(252).shape.is_full);
  EXPECT_TRUE(plan(257).shape.is_block);
  EXPECT_EQ(plan(257).grid[0], 1000u);
  EXPECT_TRUE(plan(4096).shape.is_full);
  EXPECT_FALSE(plan(4092).shape.is_full);
  EXPECT_GT(plan(32768).shape.held, 0);
  EXPECT_EQ(plan(32772).shape.held, 0);
  EXPECT_EQ(plan(40000).threads, 512u);
  EXPECT_EQ(plan(40000).shape.cluster, 1);
  for (const int64_t columns : {1, 257, 513, 2049, 16384, 32768, 40000}) {
    const DeviceLaunch launch = plan(columns);
    EXPECT_EQ(launch.threads % 32, 0u);
    EXPECT_GE(static_cast<uint32_t>(launch.shape.threads), launch.threads);
    if (launch.shape.held > 0 && launch.shape.is_block) {
      EXPECT_GE(int64_t{launch.threads} * launch.shape.held * 4, columns);
    }
  }
}

// The launch of a sum of products of `inputs` tensors of float32, in vectors of 4.
DeviceLaunch plan_products(int inputs, int64_t columns, bool has_clusters) {
  Graph graph;
  std::vector<Operand> from;
  const int64_t shape[] = {1000, columns}, strides[] = {columns, 1}, one[] = {1};
  Id product = kNone;
  for (int i = 0; i < inputs; ++i) {
    const Id x = graph.input("x" + std::to_string(i), Type::kFloat32, 2);
    product = product == kNone ? x : graph.apply(Op::kMul, product, x);
    from.push_back({nullptr, 2, shape, strides});
  }
  graph.add_result(graph.apply(Op::kSum, product));
  const Space space = make_space(graph, from, {{nullptr, 1, shape, one}});
  return plan_launch(graph, space, {.multiprocessors = 4, .has_clusters = has_clusters}, true);
}

TEST(DeviceLaunch, LongRowsGetClusters) {
  // One block of 512 threads that hold 32 registers is as fast.
  EXPECT_EQ(plan_products(1, 16384, true).shape.cluster, 1);
  EXPECT_EQ(plan_products(1, 32768, false).shape.cluster, 1);
  const DeviceLaunch row = plan_products(1, 32768, true);
  EXPECT_EQ(row.shape.cluster, 4);
  EXPECT_EQ(row.shape.held, 8);
  EXPECT_TRUE(row.shape.is_full);
  EXPECT_EQ(row.threads, 256u);
  EXPECT_EQ(row.grid[0], 4000u);
  // Two tensors, which one block cannot hold.
  EXPECT_EQ(plan_products(2, 32768, false).shape.held, 0);
  EXPECT_EQ(plan_products(2, 32768, true).shape.cluster, 4);
  EXPECT_EQ(plan_products(2, 32768, true).shape.held, 8);
  EXPECT_EQ(plan_products(2, 16384, true).shape.held, 4);
  for (const int inputs : {1, 2, 3, 5, 20}) {
    for (const int64_t columns : {8196, 9000, 20004, 40000, 100000, 131072, 262144, 1000000}) {
      const DeviceLaunch launch = plan_products(inputs, columns, true);
      const DeviceShape& shape = launch.shape;
      EXPECT_GE(static_cast<uint32_t>(shape.threads), launch.threads);
      EXPECT_LE(launch.threads, 1024u);
      EXPECT_EQ(launch.threads % 32, 0u);
      EXPECT_EQ(launch.grid[0] % static_cast<uint32_t>(shape.cluster), 0u);
      if (shape.held == 0) {
        EXPECT_EQ(shape.cluster, 1);
        continue;
      }
      EXPECT_GE(int64_t{launch.threads} * shape.held * shape.cluster * 4, columns);
      EXPECT_LE(launch.threads * static_cast<uint32_t>(shape.held * inputs * 4), 65536u / 2);
    }
  }
}

TEST(DeviceLaunch, LargeSpacesAreCountedIn64Bits) {
  EXPECT_FALSE(Call(false, (int64_t{1} << 28) - 2, 4, 8).plan().shape.is_wide);
  // The last element is behind 2^31 others.
  EXPECT_TRUE(Call(false, (int64_t{1} << 28) + 1, 4, 8).plan().shape.is_wide);
  // A vector may reach 8 elements behind the end of a row.
  EXPECT_FALSE(Call(false, 1, (int64_t{1} << 31) - 9, 1).plan().shape.is_wide);
  EXPECT_TRUE(Call(false, 1, (int64_t{1} << 31) - 8, 1).plan().shape.is_wide);
  const DeviceLaunch wide = Call(false, int64_t{1} << 31, 4, 8).plan();
  EXPECT_TRUE(wide.shape.is_wide);
  EXPECT_EQ(uint64_t{wide.grid[0]} * wide.threads, uint64_t{1} << 31);
  const DeviceLaunch tall = Call(true, (int64_t{1} << 33) + 3, 4, 8).plan();
  EXPECT_TRUE(tall.shape.is_wide);
  EXPECT_EQ(tall.grid[0], 1u << 30);
  EXPECT_EQ(tall.grid[1], 3u);  // of 4 rows a block
}

TEST(DeviceLaunch, AParameterHas4096BytesAtMost) {
  Graph graph;
  std::vector<Operand> inputs;
  const int64_t shape[] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
  int64_t strides[40][12];
  Id sum = kNone;
  for (int i = 0; i < 40; ++i) {
    const Id x = graph.input("x" + std::to_string(i), Type::kFloat32, 2);
    sum = sum == kNone ? x : graph.apply(Op::kAdd, sum, x);
    for (int d = 0; d < 12; ++d) strides[i][d] = 1 + (i * 7 + d * 5) % 31;
    inputs.push_back({nullptr, 12, shape, strides[i]});
  }
  graph.add_result(sum);
  const Space space = make_space(graph, inputs, {inputs[3]});
  const std::vector<void*> none(41, nullptr);
  try {
    launch_parameters(graph, space, none.data(), none.data(), nullptr);
    FAIL() << "found no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "found 41 tensors in 11 dimensions, wanted fewer of one of them for a GPU; make "
                 "the tensors contiguous");
  }
}

// The parameters of the launches of "return x * w", the sum of x * w over rows, and its total.
TEST(DeviceLaunch, SumsOverRowsHaveTwoLaunches) {
  Graph graph;
  const Id x = graph.input("x", Type::kFloat16, 2), w = graph.input("w", Type::kFloat16, 1);
  const Id product = graph.apply(Op::kMul, x, w);
  graph.add_result(product);
  graph.add_result(product, Output::kColumnSums);
  graph.add_result(product, Output::kTotal);
  const int64_t shape[] = {1000, 200}, strides[] = {200, 1};
  const Operand whole = {nullptr, 2, shape, strides}, row = {nullptr, 1, shape + 1, strides + 1};
  const Operand sums = {nullptr, 1, shape + 1, strides + 1}, total = {nullptr, 0, nullptr, nullptr};
  const Space space = make_space(graph, {whole, row}, {whole, sums, total});
  EXPECT_EQ(space.rows, 1000);
  EXPECT_EQ(space.columns, 200);
  const DeviceLaunch launch = plan_launch(graph, space, {.multiprocessors = 4}, false);
  // A row has 25 vectors of 8: 32 threads share it.
  EXPECT_EQ(launch.lanes, 32);
  EXPECT_EQ(launch.threads, 256u);
  EXPECT_EQ(launch.grid[0], 1u);
  EXPECT_EQ(launch.grid[1], launch.parts);
  EXPECT_EQ(launch.parts, (1000 + launch.rows_of_chunk - 1) / launch.rows_of_chunk);
  EXPECT_EQ(launch.total_parts, launch.parts);
  const std::vector<int64_t> places = places_of_partial_sums(graph, space, launch);
  EXPECT_EQ(places, (std::vector<int64_t>{0, 0, launch.parts * 200 * 4,
                                          launch.parts * 200 * 4 + (launch.parts + 3) / 4 * 16}));
  void* const none[] = {nullptr, nullptr};
  void* const places_of[] = {nullptr, reinterpret_cast<void*>(4), nullptr};
  const std::vector<uint64_t> words =
      launch_parameters(graph, space, none, places_of, nullptr, launch);
  EXPECT_EQ(words[words.size() - 2], static_cast<uint64_t>(launch.rows_of_chunk));
  EXPECT_EQ(words.back(), 32u);
  EXPECT_EQ(words[words.size() - 3], 1u);  // the partial sums need not be aligned
  float memory[3];
  void* const out[] = {&memory[0], &memory[1], &memory[2]};
  char* const partial = reinterpret_cast<char*>(0x1000);
  const SumsLaunch second = plan_sums(graph, space, launch, partial, out);
  EXPECT_EQ(second.grid, (std::array<uint32_t, 3>{7, 2, 1}));
  PartialSums<2> p;
  ASSERT_EQ(second.words.size() * 8, sizeof p);
  std::memcpy(static_cast<void*>(&p), second.words.data(), sizeof p);
  EXPECT_EQ(p.partial[0], partial);
  EXPECT_EQ(p.partial[1], partial + places[2]);
  EXPECT_EQ(p.out[0], &memory[1]);
  EXPECT_EQ(p.step[0], 1);
  EXPECT_EQ(p.columns[0], 200);
  EXPECT_EQ(p.columns[1], 1);
  EXPECT_EQ(p.parts[1], launch.total_parts);
}

}  // namespace
}  // namespace opdock::formula
