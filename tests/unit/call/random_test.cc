// Tests ranges of random numbers.
// SPDX-License-Identifier: Apache-2.0
#include "call/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "chain/generators.h"
#include "support.h"

namespace opdock {
namespace {

using namespace testing_support;
using A = Arguments;

struct Drawn {
  uint64_t seed, offset;
  const uint64_t* device_seed;
  auto operator<=>(const Drawn&) const = default;
};
std::mutex drawing;
std::vector<Drawn> drawn;

opdock_status plan_draw(const opdock_call*, const opdock_value* args, uint32_t, opdock_plan* plan) {
  plan->random_numbers = static_cast<uint64_t>(args[0].as.i64);
  return OPDOCK_OK;
}
opdock_status run_draw(const opdock_call* call, const opdock_value* args, uint32_t, opdock_value*,
                       uint32_t) {
  if ((call->generator == nullptr) != (args[0].as.i64 == 0)) return OPDOCK_INTERNAL;
  if (call->generator == nullptr) return OPDOCK_OK;
  const std::lock_guard lock(drawing);
  drawn.push_back({call->generator->seed, call->generator->offset, call->generator->device_seed});
  return OPDOCK_OK;
}
opdock_op draw_op(uint32_t flags) {
  opdock_op o = make_op("draw(int count, Generator? generator=None) -> ()", flags);
  o.plan = plan_draw;
  o.run = run_draw;
  return o;
}
const opdock_op* draw_op() {
  static const opdock_op op = draw_op(OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_RANDOM);
  return &op;
}

opdock_generator generator_of(uint64_t seed, uint64_t offset = 0) {
  return {sizeof(opdock_generator), 0, seed, offset, nullptr};
}
opdock_value value(opdock_generator* generator) {
  opdock_value v{};
  v.tag = OPDOCK_TAG_GENERATOR;
  v.as.generator = generator;
  return v;
}

TEST(Random, TakesRangesOfTheArgumentOrOfTheOptionsBeforeIt) {
  TestFunction f(draw_op());
  opdock_generator mine = generator_of(5, 100), options_own = generator_of(6);
  drawn.clear();
  EXPECT_EQ(f.invoke({A::integer(10), value(&mine)}), OPDOCK_OK) << f.error;
  EXPECT_EQ(f.invoke({A::integer(3), value(&mine)}), OPDOCK_OK) << f.error;
  opdock_call_options options{};
  options.struct_size = sizeof options;
  options.generator = &options_own;
  EXPECT_EQ(f.invoke({A::integer(4), value(&mine)}, {}, &options), OPDOCK_OK) << f.error;
  EXPECT_EQ(f.invoke({A::integer(0), value(&mine)}), OPDOCK_OK) << f.error;  // draws nothing
  EXPECT_EQ(drawn, (std::vector<Drawn>{{5, 100, nullptr}, {5, 110, nullptr}, {6, 0, nullptr}}));
  EXPECT_EQ(mine.offset, 113u);
  EXPECT_EQ(options_own.offset, 4u);
}

TEST(Random, GivesThreadsRangesOfTheirOwn) {
  TestFunction f(draw_op());
  opdock_generator shared = generator_of(1);
  drawn.clear();
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&] {
      const opdock_value args[] = {A::integer(7), value(&shared)};
      for (int i = 0; i < 100; ++i)
        opdock_invoke(&f.function, nullptr, args, 2, nullptr, 0, nullptr, 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::sort(drawn.begin(), drawn.end());
  ASSERT_EQ(drawn.size(), 1600u);
  for (size_t i = 0; i < drawn.size(); ++i) EXPECT_EQ(drawn[i].offset, 7 * i);
  EXPECT_EQ(shared.offset, 11200u);
}

TEST(Random, NeedsTheFlagAndAGenerator) {
  static const opdock_op unflagged = draw_op(OPDOCK_OP_THREAD_SAFE);
  TestFunction f(&unflagged), g(draw_op());
  opdock_generator mine = generator_of(5), small = generator_of(5), device = generator_of(5);
  EXPECT_EQ(f.invoke({A::integer(1), value(&mine)}), OPDOCK_INTERNAL);
  EXPECT_NE(std::string(f.error).find("the flag random"), std::string::npos) << f.error;
  EXPECT_EQ(g.invoke({A::integer(1), A::none()}), OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(g.error).find("no generator"), std::string::npos) << g.error;
  small.struct_size = 8;
  EXPECT_EQ(g.invoke({A::integer(1), value(&small)}), OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(g.error).find("struct_size 8"), std::string::npos) << g.error;
  const uint64_t there = 0;
  device.device_seed = &there;
  EXPECT_EQ(g.invoke({A::integer(1), value(&device)}), OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(g.error).find("device memory"), std::string::npos) << g.error;
}

TEST(Generators, BeginWithOneSeedAndGoOn) {
  Generators one, other;
  opdock_generator* const cpu = one.of(kCpu);
  EXPECT_EQ(one.of(kCpu), cpu);
  EXPECT_NE(one.of({OPDOCK_CUDA, 0}), cpu);
  EXPECT_NE(cpu->seed, other.of(kCpu)->seed);  // seeded from the system's entropy
  cpu->offset = 77;
  one.seed(42);
  EXPECT_EQ(cpu->seed, 42u);
  EXPECT_EQ(cpu->offset, 0u);
  EXPECT_EQ(one.of({OPDOCK_CUDA, 1})->seed, 42u);
}

}  // namespace
}  // namespace opdock
