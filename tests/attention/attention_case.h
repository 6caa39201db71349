// Shared by the tests of opdock.attention/1: a driver whose device is this machine's memory, an
// attention with a plain computation of it, and an op that calls the table as a plugin does.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "../gemm/fake_numbers.h"
#include "driver/driver.h"
#include "opdock/attention.h"
#include "unit/call/support.h"

namespace opdock::testing_support {

using stand_in::kBf16;
using stand_in::kF16;

constexpr uint32_t kBackward = OPDOCK_ATTENTION_BACKWARD, kCausal = OPDOCK_ATTENTION_CAUSAL,
                   kBottomRight = OPDOCK_ATTENTION_CAUSAL | OPDOCK_ATTENTION_BOTTOM_RIGHT,
                   kLse = OPDOCK_ATTENTION_LSE,
                   kLengths = OPDOCK_ATTENTION_QUERY_LENGTHS | OPDOCK_ATTENTION_KEY_LENGTHS;

class HostDriver : public Driver {
 public:
  bool captures = false;
  int entered = 0, allocated = 0;
  int waited = 0;  // how often for all of a context's work
  opdock_device_facts known{};

  HostDriver() {
    known.struct_size = sizeof known;
    known.type = OPDOCK_CUDA;
    known.arch_major = 9;
    known.multiprocessors = 132;
  }

  Backend backend() const override { return Backend::kCuda; }
  Status facts(int, const opdock_device_facts** out) override {
    *out = &known;
    return {};
  }
  Status arch(int, std::string*) override { return {}; }
  Status enter(int, void*, void**) override {
    ++entered;
    return {};
  }
  void leave(void*) override { --entered; }
  Status load(int, std::span<const uint8_t>, ModuleHandle*) override { return {}; }
  Status find(ModuleHandle, const char*, FunctionHandle*) override { return {}; }
  const std::vector<uint32_t>* params(FunctionHandle) override { return nullptr; }
  Status launch(FunctionHandle, void*, const opdock_launch&) override { return {}; }
  Status allocate(int, void*, uint64_t bytes, void** out) override {
    ++allocated;
    *out = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    return {};
  }
  Status release(int, void*, void* memory) override {
    --allocated;
    std::free(memory);
    return {};
  }
  Status is_capturing(void*, bool* out) override {
    EXPECT_GT(entered, 0) << "a driver's function is called where no context is current";
    *out = captures;
    return {};
  }
  Status synchronize(void*) override { return {}; }
  void* symbol(const char* name) override {
    if (std::string(name) == "cuMemsetD32Async") return reinterpret_cast<void*>(&fill);
    if (std::string(name) == "cuCtxSynchronize") return reinterpret_cast<void*>(&wait);
    return std::string(name) == "cuDriverGetVersion" ? reinterpret_cast<void*>(&version) : nullptr;
  }

 private:
  static int wait();
  static int version(int* out) {
    *out = 13000;
    return 0;
  }
  static int fill(uint64_t to, uint32_t value, size_t count, void*) {
    for (size_t i = 0; i < count; ++i) reinterpret_cast<uint32_t*>(to)[i] = value;
    return 0;
  }
};

inline HostDriver driver;
inline int HostDriver::wait() {
  ++driver.waited;
  return 0;
}

// Returns how often the stand-in has done something.
inline int count(const char* what) {
  static const auto counted = [] {
    void* const library = dlopen(std::getenv("FAKE_CUDNN_LIBRARY"), RTLD_NOW);
    return reinterpret_cast<int (*)(const char*)>(dlsym(library, "fake_cudnn_count"));
  }();
  return counted(what);
}

// Returns whether the stand-in's dropout keeps a weight.
inline bool keeps(int64_t seed, int64_t offset, int64_t index, double probability) {
  static const auto asked = [] {
    void* const library = dlopen(std::getenv("FAKE_CUDNN_LIBRARY"), RTLD_NOW);
    return reinterpret_cast<int (*)(int64_t, int64_t, int64_t, double)>(
        dlsym(library, "fake_cudnn_keeps"));
  }();
  return asked(seed, offset, index, probability) != 0;
}

// Numbers of a tensor [batch, heads, tokens, size], in 16 bits as a plugin has them: tokens before
// heads.
struct Heads {
  int64_t batch, heads, tokens, size;
  int type;
  std::vector<uint16_t> memory;

  Heads(int64_t b, int64_t h, int64_t t, int64_t s, int element, int seed)
      : batch(b),
        heads(h),
        tokens(t),
        size(s),
        type(element),
        memory(static_cast<size_t>(b * h * t * s)) {
    unsigned state = static_cast<unsigned>(seed) * 2654435761u + 1;
    for (size_t i = 0; i < memory.size(); ++i) {
      state = state * 1664525u + 1013904223u;
      stand_in::put(memory.data(), type, static_cast<int64_t>(i),
                    static_cast<double>(state >> 8) / (1 << 23) - 1);
    }
  }
  int64_t at(int64_t b, int64_t h, int64_t t, int64_t e) const {
    return ((b * tokens + t) * heads + h) * size + e;
  }
  double get(int64_t b, int64_t h, int64_t t, int64_t e) const {
    return stand_in::get(memory.data(), type, at(b, h, t, e));
  }
  opdock_attention_heads view() {
    return {memory.data(), tokens * heads * size, size, heads * size};
  }
};

// An attention with its memory and a plain computation of it.
struct Case {
  static constexpr int64_t kSeed = 0x123456789, kOffset = 0x7abcdef01;  // more than 32 bits each
  static constexpr int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kSize = 8, kValueSize = 16;
  int64_t queries, keys;
  int type;
  Heads q, k, v, d_out, out, d_q, d_k, d_v;
  std::vector<float> lse, bias;
  std::vector<uint16_t> bias_16, d_bias;  // a bias in 16 bits, and its gradient
  alignas(16) std::array<float, kHeads> slopes{0.5f, -0.25f, 0.125f, 1};
  std::vector<int32_t> query_lengths, key_lengths;
  opdock_attention what{};

  explicit Case(uint32_t flags, int64_t window = 0, int64_t num_queries = 5, int64_t num_keys = 7,
                int element = kF16)
      : queries(num_queries),
        keys(num_keys),
        type(element),
        q(kBatch, kHeads, queries, kSize, element, 1),
        k(kBatch, kKvHeads, keys, kSize, element, 2),
        v(kBatch, kKvHeads, keys, kValueSize, element, 3),
        d_out(kBatch, kHeads, queries, kValueSize, element, 4),
        out(kBatch, kHeads, queries, kValueSize, element, 5),
        d_q(kBatch, kHeads, queries, kSize, element, 6),
        d_k(kBatch, kKvHeads, keys, kSize, element, 7),
        d_v(kBatch, kKvHeads, keys, kValueSize, element, 8),
        lse(static_cast<size_t>(kBatch * kHeads * queries)),
        query_lengths{static_cast<int32_t>(queries), static_cast<int32_t>(queries) - 2},
        key_lengths{static_cast<int32_t>(keys) - 1, static_cast<int32_t>(keys)} {
    what.struct_size = sizeof what;
    what.flags = flags;
    what.dtype = {static_cast<uint8_t>(element == kF16 ? OPDOCK_DTYPE_FLOAT : OPDOCK_DTYPE_BFLOAT),
                  16, 1};
    what.scale = 0.75f;
    what.batch = kBatch;
    what.heads = kHeads;
    what.kv_heads = kKvHeads;
    what.queries = queries;
    what.keys = keys;
    what.size = kSize;
    what.value_size = kValueSize;
    what.window = window;
    what.q = q.view();
    what.k = k.view();
    what.v = v.view();
    what.out = out.view();
    what.d_out = d_out.view();
    what.d_q = d_q.view();
    what.d_k = d_k.view();
    what.d_v = d_v.view();
    what.lse = lse.data();
    what.query_lengths = query_lengths.data();
    what.key_lengths = key_lengths.data();
  }
  // One bias for all rows of the batch.
  void add_bias() {
    bias.resize(static_cast<size_t>(kHeads * queries * keys));
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = std::sin(static_cast<float>(i));
    what.bias = bias.data();
    what.bias_dtype = kF32;
    const int64_t strides[4] = {0, queries * keys, keys, 1};
    for (int i = 0; i < 4; ++i) what.bias_strides[i] = strides[i];
  }
  // A bias in 16 bits has a gradient that can be computed.
  void add_bias_16() {
    add_bias();
    bias_16.resize(bias.size());
    d_bias.resize(bias.size());
    for (size_t i = 0; i < bias.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      stand_in::put(bias_16.data(), type, at, static_cast<double>(bias[i]));
      bias[i] = static_cast<float>(stand_in::get(bias_16.data(), type, at));
    }
    what.bias = bias_16.data();
    what.bias_dtype = what.dtype;
    what.d_bias = d_bias.data();
  }
  void add_slopes() {
    what.slopes = slopes.data();
    what.flags |= OPDOCK_ATTENTION_SLOPES;
  }
  bool has(uint32_t flag) const { return (what.flags & flag) != 0; }

  bool sees(int64_t b, int64_t i, int64_t j) const {
    const auto row = static_cast<size_t>(b);
    const int64_t rows = has(OPDOCK_ATTENTION_QUERY_LENGTHS) ? query_lengths[row] : queries;
    const int64_t columns = has(OPDOCK_ATTENTION_KEY_LENGTHS) ? key_lengths[row] : keys;
    const int64_t place = i + (has(OPDOCK_ATTENTION_BOTTOM_RIGHT) ? columns - rows : 0);
    return i < rows && j < columns && (!has(OPDOCK_ATTENTION_CAUSAL) || j <= place) &&
           (what.window == 0 || j > place - what.window);
  }

  // Compares out and lse with a plain computation, and the gradients if there are any.
  void check() const {
    const int64_t group = kHeads / kKvHeads;
    std::vector<double> d_keys(d_k.memory.size()), d_values(d_v.memory.size());
    std::vector<double> d_biases(d_bias.size());
    const bool drops = has(OPDOCK_ATTENTION_DROPOUT);
    const double kept = drops ? 1 - static_cast<double>(what.dropout) : 1;
    const auto factor = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
      const int64_t index = ((b * kHeads + h) * queries + i) * keys + j;
      if (!drops) return 1.0;
      return keeps(kSeed, kOffset, index, kept) ? 1 / kept : 0;
    };
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t h = 0; h < kHeads; ++h) {
        for (int64_t i = 0; i < queries; ++i) {
          std::vector<double> weights(static_cast<size_t>(keys));
          double sum = 0;
          for (int64_t j = 0; j < keys; ++j) {
            if (!sees(b, i, j)) continue;
            double score = 0;
            for (int64_t e = 0; e < kSize; ++e)
              score += q.get(b, h, i, e) * k.get(b, h / group, j, e);
            score *= static_cast<double>(what.scale);
            if (!bias.empty())
              score += static_cast<double>(bias[static_cast<size_t>((h * queries + i) * keys + j)]);
            if (has(OPDOCK_ATTENTION_SLOPES))
              score +=
                  static_cast<double>(slopes[static_cast<size_t>(h)]) * static_cast<double>(j - i);
            sum += weights[static_cast<size_t>(j)] = std::exp(score);
          }
          if (sum == 0) continue;  // the stand-in does not say what the library gives
          for (double& weight : weights) weight /= sum;
          if (has(OPDOCK_ATTENTION_LSE | OPDOCK_ATTENTION_BACKWARD)) {
            EXPECT_NEAR(
                static_cast<double>(lse[static_cast<size_t>((b * kHeads + h) * queries + i)]),
                std::log(sum), 1e-5);
          }
          double dot = 0;  // of out and its gradient
          for (int64_t e = 0; e < kValueSize; ++e) {
            double value = 0;
            for (int64_t j = 0; j < keys; ++j)
              value +=
                  weights[static_cast<size_t>(j)] * factor(b, h, i, j) * v.get(b, h / group, j, e);
            near(out.get(b, h, i, e), value, "out");
            dot += value * d_out.get(b, h, i, e);
          }
          if (!has(OPDOCK_ATTENTION_BACKWARD)) continue;
          std::vector<double> d_query(static_cast<size_t>(kSize));
          for (int64_t j = 0; j < keys; ++j) {
            const double weight = weights[static_cast<size_t>(j)];
            double d_weight = 0;
            for (int64_t e = 0; e < kValueSize; ++e) {
              d_weight += d_out.get(b, h, i, e) * v.get(b, h / group, j, e);
              d_values[static_cast<size_t>(d_v.at(b, h / group, j, e))] +=
                  weight * factor(b, h, i, j) * d_out.get(b, h, i, e);
            }
            const double d_biased = weight * (d_weight * factor(b, h, i, j) - dot);
            if (!d_biases.empty())
              d_biases[static_cast<size_t>((h * queries + i) * keys + j)] += d_biased;
            const double d_score = d_biased * static_cast<double>(what.scale);
            for (int64_t e = 0; e < kSize; ++e) {
              d_query[static_cast<size_t>(e)] += d_score * k.get(b, h / group, j, e);
              d_keys[static_cast<size_t>(d_k.at(b, h / group, j, e))] +=
                  d_score * q.get(b, h, i, e);
            }
          }
          for (int64_t e = 0; e < kSize; ++e)
            near(d_q.get(b, h, i, e), d_query[static_cast<size_t>(e)], "d_q");
        }
      }
    }
    if (!has(OPDOCK_ATTENTION_BACKWARD)) return;
    for (size_t i = 0; i < d_keys.size(); ++i)
      near(stand_in::get(d_k.memory.data(), type, static_cast<int64_t>(i)), d_keys[i], "d_k");
    for (size_t i = 0; i < d_values.size(); ++i)
      near(stand_in::get(d_v.memory.data(), type, static_cast<int64_t>(i)), d_values[i], "d_v");
    if (!has(OPDOCK_ATTENTION_BIAS_GRADIENT)) return;
    for (size_t i = 0; i < d_biases.size(); ++i)
      near(stand_in::get(d_bias.data(), type, static_cast<int64_t>(i)), d_biases[i], "d_bias");
  }
  void near(double found, double wanted, const char* what_it_is) const {
    // Results and what the gradients are computed from are rounded to 16 bits.
    const double step = type == kF16 ? 1.0 / 1024 : 1.0 / 128;
    EXPECT_NEAR(found, wanted, 2 * step * (1 + std::fabs(wanted))) << what_it_is;
  }
};

inline opdock_attention* wanted;
inline opdock_status planned, ran;
inline uint64_t workspace_bytes;
// Which function is called in a phase that is not its own: 1 run in plan, 2 plan in run; 3 gives
// run no workspace.
inline int misuse = 0;
// Whether the op is run also where the service declines to plan it, as a plugin with own kernels
// is.
inline bool goes_on = false;

inline const opdock_attention_table* table(const opdock_call* call) {
  return static_cast<const opdock_attention_table*>(call->host->get_extension(OPDOCK_ATTENTION_1));
}
inline opdock_status plan_it(const opdock_call* call, const opdock_value*, uint32_t,
                             opdock_plan* plan) {
  if (misuse == 1) return table(call)->run(call, wanted, nullptr, 0);
  planned = table(call)->plan(call, wanted, &workspace_bytes);
  plan->workspace_bytes = workspace_bytes;
  return goes_on ? OPDOCK_OK : planned;
}
inline opdock_status run_it(const opdock_call* call, const opdock_value*, uint32_t, opdock_value*,
                            uint32_t) {
  if (misuse == 2) return table(call)->plan(call, wanted, &workspace_bytes);
  return ran = table(call)->run(call, wanted, call->workspace,
                                misuse == 3 ? 0 : call->workspace_bytes);
}
inline opdock_status prepare_it(const opdock_call* call) {
  return table(call)->prepare(call);
}

// Calls the op with what `wanted` says, on the device.
struct Caller {
  static const opdock_op* op() {
    static const opdock_op op = make_op("attention(Tensor x) -> ()", plan_it, run_it, prepare_it,
                                        OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_CAPTURE_SAFE);
    return &op;
  }
  Caller() : f(op()) { f.resolver.driver = &driver; }
  opdock_status call(Case* what, opdock_device device = {OPDOCK_CUDA, 0}) {
    wanted = &what->what;
    if (!what->has(kLse | kBackward)) wanted->lse = nullptr;  // as a caller has it
    Arguments a;
    opdock_tensor* const x = a.tensor({1});
    x->device = device;
    return f.invoke({Arguments::value(x)}, {}, options);
  }
  TestFunction f;
  const opdock_call_options* options = nullptr;
};

class Attention : public ::testing::Test {
 protected:
  void SetUp() override {
    misuse = 0;
    goes_on = false;
  }
  Caller caller;

  // Forward, with and without the log of the sum, and backward.
  void check(Case* what) {
    what->what.flags |= kLse;
    ASSERT_EQ(caller.call(what), OPDOCK_OK) << caller.f.error;
    what->check();
    what->what.flags ^= kLse | kBackward;
    ASSERT_EQ(caller.call(what), OPDOCK_OK) << caller.f.error;
    what->check();
    EXPECT_EQ(driver.allocated, 0);
  }
};

}  // namespace opdock::testing_support
