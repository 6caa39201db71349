// Measures the interpreter of formulas in one thread, beside the same formula compiled for this
// processor: the name of each pair ends in interpreted and compiled.
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <cstring>
#include <functional>
#include <new>
#include <random>
#include <vector>

#include "formula/interpreter.h"
#include "formula_compiled.h"

namespace {

using namespace opdock::formula;

constexpr int64_t kElements = 1 << 20;

// Tensors begin at a cache line, as frameworks allocate them.
struct Data {
  Data() {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-4, 4);
    for (float*& one : inputs) {
      one = allocate();
      for (int64_t i = 0; i < kElements; ++i) one[i] = uniform(random);
    }
    result = allocate();
  }
  static float* allocate() {
    void* const memory = ::operator new[](kElements * sizeof(float), std::align_val_t(64));
    std::memset(memory, 0, kElements * sizeof(float));
    return static_cast<float*>(memory);
  }
  float* inputs[3];
  float* result;
};
Data& data() {
  static Data& all = *new Data;
  return all;
}

void interpret(benchmark::State& state, const Graph& graph, int64_t rows) {
  const int64_t shape[] = {rows, kElements / rows}, strides[] = {kElements / rows, 1};
  std::vector<Operand> in;
  std::vector<const void*> from;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    in.push_back({data().inputs[i], 2, shape, strides});
    from.push_back(data().inputs[i]);
  }
  void* const to = data().result;
  const Space space = make_space(graph, in, {{to, 2, shape, strides}});
  const Interpreter interpreter(graph);
  for (auto _ : state) {
    interpreter.run(space, from.data(), &to, nullptr, 0, interpreter.pieces(space));
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kElements);
}

// Builds formulas.
struct Build {
  Graph graph;
  Id x(const char* name) { return graph.input(name, Type::kFloat32, 2); }
  Id operator()(Op op, Id a, Id b = kNone, Id c = kNone) { return graph.apply(op, a, b, c); }
  Id operator()(Op op, Id a, double b) { return graph.apply(op, a, graph.constant(b)); }
};

Graph polynomial() {
  Build f;
  const Id x = f.x("x");
  Id value = f.graph.constant(0.1);
  for (int k = 1; k <= 10; ++k) value = f(Op::kFma, value, x, f.graph.constant(0.1 + k));
  f.graph.add_result(value);
  return f.graph;
}
Graph silu() {
  Build f;
  const Id x = f.x("x"), gate = f.x("gate"), residual = f.x("residual");
  f.graph.add_result(f(Op::kAdd, f(Op::kMul, f(Op::kSilu, x), gate), residual));
  return f.graph;
}
Graph gelu() {
  Build f;
  const Id x = f.x("x"), scale = f.x("scale"), residual = f.x("residual");
  const Id value = f(Op::kGeluTanh, f(Op::kMul, x, 0.5));
  f.graph.add_result(f(Op::kAdd, f(Op::kMul, value, scale), residual));
  return f.graph;
}
Graph exponentials() {
  Build f;
  Id value = f(Op::kAdd, f(Op::kMul, f.x("x"), 0.5), 0.1);
  value = f(Op::kMul, f(Op::kExp, value), -0.3);
  value = f(Op::kReciprocal, f(Op::kAdd, f(Op::kExp, value), 1.0));
  value = f(Op::kSub, f(Op::kMul, value, 2.0), 1.0);
  f.graph.add_result(f(Op::kExp, value));
  return f.graph;
}
Graph arithmetic() {
  Build f;
  const Id x = f.x("x"), z = f.x("z");
  Id value = f(Op::kAdd, f(Op::kMul, x, 0.5), z);
  value = f(Op::kMul, f(Op::kSub, value, 0.25), x);
  value = f(Op::kMaximum, f(Op::kAdd, value, 1.5), z);
  value = f(Op::kAdd, f(Op::kMul, value, z), x);
  f.graph.add_result(f(Op::kMul, f(Op::kSub, value, 2.0), 0.125));
  return f.graph;
}
Graph softmax() {
  Build f;
  const Id x = f.x("x");
  const Id power = f(Op::kExp, f(Op::kSub, x, f(Op::kAmax, x)));
  f.graph.add_result(f(Op::kDiv, power, f(Op::kSum, power)));
  return f.graph;
}

void add(const std::string& name, const Graph& graph, int64_t rows,
         const std::function<void(const float*, const float*, const float*, float*)>& compiled) {
  benchmark::RegisterBenchmark((name + "/interpreted").c_str(),
                               [=](benchmark::State& state) { interpret(state, graph, rows); });
  benchmark::RegisterBenchmark((name + "/compiled").c_str(), [=](benchmark::State& state) {
    for (auto _ : state) {
      compiled(data().inputs[0], data().inputs[1], data().inputs[2], data().result);
      benchmark::ClobberMemory();
    }
    state.SetItemsProcessed(state.iterations() * kElements);
  });
}

}  // namespace

int main(int argc, char** argv) {
  using P = const float*;
  add("polynomial", polynomial(), 1,
      [](P x, P, P, float* y) { compiled::polynomial(x, y, kElements); });
  add("arithmetic", arithmetic(), 1,
      [](P x, P z, P, float* y) { compiled::arithmetic(x, z, y, kElements); });
  add("silu", silu(), 1, [](P a, P b, P c, float* y) { compiled::silu(a, b, c, y, kElements); });
  add("gelu_tanh", gelu(), 1,
      [](P a, P b, P c, float* y) { compiled::gelu(a, b, c, y, kElements); });
  add("exponentials", exponentials(), 1,
      [](P x, P, P, float* y) { compiled::exponentials(x, y, kElements); });
  add("softmax", softmax(), 1024,
      [](P x, P, P, float* y) { compiled::softmax(x, y, 1024, kElements / 1024); });
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
