// Tests the answers that a plugin gets (opdock.tuning/1), and what is recorded while variants are
// measured.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>

#include "../call/support.h"
#include "opdock/tuning.h"
#include "tune/tuning.h"

namespace opdock {
namespace {

using namespace testing_support;

constexpr uint64_t kHigh = std::numeric_limits<uint64_t>::max();

TuningScope scope_of(const std::string& plugin, const std::string& device = "cpu") {
  return {plugin, "1.0.0", "00ff", device};
}

int32_t ask(const Tuning* tuning, uint64_t question, uint32_t count = 8) {
  return tuning->choice(question, count, [] { return std::string(); });  // nothing is measured
}

TEST(Answers, AreThoseThatWereStored) {
  const Tuning* tuning = intern_tuning(scope_of("stored"), {{7, 2}, {0, 1}, {kHigh, 0}});
  EXPECT_EQ(ask(tuning, 7), 2);
  EXPECT_EQ(ask(tuning, 0), 1);
  EXPECT_EQ(ask(tuning, kHigh), 0);
  for (uint64_t other : {uint64_t{1}, uint64_t{6}, kHigh - 1, uint64_t{7} << 32}) {
    EXPECT_EQ(ask(tuning, other), -1) << other;
  }
}

TEST(Answers, AreNoneWhereNothingIsStored) {
  EXPECT_EQ(ask(intern_tuning(scope_of("nothing"), {}), 7), -1);
}

TEST(Answers, AreReadOnceForAllOpsOfAPlugin) {
  EXPECT_EQ(find_tuning(scope_of("once")), nullptr);
  const Tuning* tuning = intern_tuning(scope_of("once"), {{7, 2}});
  EXPECT_EQ(find_tuning(scope_of("once")), tuning);
  EXPECT_EQ(find_tuning(scope_of("once", "another device")), nullptr);
}

TEST(Answers, OutsideOfThePluginsRangeAreNone) {
  const Tuning* tuning = intern_tuning(scope_of("range"), {{7, 2}, {8, -5}});
  EXPECT_EQ(ask(tuning, 7, 3), 2);
  EXPECT_EQ(ask(tuning, 7, 2), -1);
  EXPECT_EQ(ask(tuning, 7, 0), -1);
  EXPECT_EQ(ask(tuning, 8), -1);
}

TEST(Answers, AreFoundAmongManyThatCollide) {
  TunedChoices known;
  for (uint64_t i = 0; i < 1000; ++i) known.emplace_back(i * i << (i % 40), i % 7);
  const Tuning* tuning = intern_tuning(scope_of("many"), known);
  for (const auto& [question, choice] : known) {
    // If a question has two results, the first counts.
    const auto first = std::find_if(known.begin(), known.end(),
                                    [&, q = question](const auto& one) { return one.first == q; });
    EXPECT_EQ(ask(tuning, question), first->second) << question;
  }
  EXPECT_EQ(ask(tuning, kHigh), -1);
}

TEST(Answers, HoldForTheWholeScopeAlone) {
  const TuningScope mine = scope_of("scope");
  const Tuning* tuning = intern_tuning(mine, {{7, 2}});
  EXPECT_EQ(intern_tuning(mine, {{7, 5}}), tuning) << "one for the process, made by the first";
  EXPECT_EQ(ask(tuning, 7), 2);
  for (const auto member :
       {&TuningScope::plugin, &TuningScope::version, &TuningScope::build, &TuningScope::device}) {
    TuningScope other = mine;
    other.*member += "x";
    const Tuning* apart = intern_tuning(other, {});
    EXPECT_NE(apart, tuning);
    EXPECT_EQ(ask(apart, 7), -1);
    retune(other, {{7, 4}});
    EXPECT_EQ(ask(apart, 7), 4);
    EXPECT_EQ(ask(tuning, 7), 2);
  }
}

TEST(Answers, MayChangeWhileOthersAsk) {
  const TuningScope scope = scope_of("threads");
  const Tuning* tuning = intern_tuning(scope, {});
  std::atomic<bool> ends{false};
  std::atomic<int> wrong{0}, seen{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!ends) {
        const int32_t found = ask(tuning, 7);
        if (found == 3) ++seen;
        if (found != -1 && found != 3) ++wrong;
      }
    });
  }
  for (int i = 0; i < 200 || seen == 0; ++i)
    retune(scope, i % 2 == 0 ? TunedChoices{{7, 3}} : TunedChoices{});
  ends = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(seen, 0);
}

// An op that asks question 7 (eight variants) in plan and question 8 (three variants) in run, and
// the last answers that it got.
std::atomic<int32_t> told_in_plan, told_in_run;
const opdock_op* asking_op() {
  static const opdock_op op = [] {
    opdock_op o = make_op("asking() -> ()");
    const auto ask_by = [](const opdock_call* call, uint64_t question, uint32_t count) {
      const auto* table =
          static_cast<const opdock_tuning*>(call->host->get_extension("opdock.tuning/1"));
      return table->choice(call, question, count);
    };
    static const auto ask = ask_by;
    o.plan = [](const opdock_call* call, const opdock_value*, uint32_t, opdock_plan*) {
      told_in_plan = ask(call, 7, 8);
      return OPDOCK_OK;
    };
    o.run = [](const opdock_call* call, const opdock_value*, uint32_t, opdock_value*, uint32_t) {
      told_in_run = ask(call, 8, 3);
      return OPDOCK_OK;
    };
    return o;
  }();
  return &op;
}

struct Asking : testing::Test {
  // Targets live as long as the process, so all tests share one.
  Asking() : f(asking_op()) {
    f.resolver.tuning = intern_tuning(scope, {});
    retune(scope, {});
  }
  ~Asking() override { stop_measuring(); }
  void call() { ASSERT_EQ(f.invoke({}), OPDOCK_OK) << f.error; }
  const TuningScope scope = scope_of("asking");
  TestFunction f;
};

TEST_F(Asking, GetsWhatIsStored) {
  call();
  EXPECT_EQ(told_in_plan, -1);
  retune(scope, {{7, 6}, {8, 1}});
  call();
  EXPECT_EQ(told_in_plan, 6);
  EXPECT_EQ(told_in_run, 1);
}

TEST_F(Asking, IsRecordedOnlyWhileWaysAreMeasured) {
  call();
  EXPECT_TRUE(take_asked().empty());
  measure_ways({}, {});
  call();
  call();
  const std::vector<AskedQuestion> asked = take_asked();
  ASSERT_EQ(asked.size(), 2u) << "each question once";
  EXPECT_EQ(asked[0].scope, scope);
  EXPECT_EQ(asked[0].op, "asking");
  EXPECT_EQ(asked[0].question, 7u);
  EXPECT_EQ(asked[0].count, 8u);
  EXPECT_EQ(asked[1].question, 8u);
  EXPECT_EQ(asked[1].count, 3u);
  EXPECT_TRUE(take_asked().empty()) << "taken once";
  stop_measuring();
  call();
  measure_ways({}, {});
  EXPECT_TRUE(take_asked().empty());
}

TEST_F(Asking, IsToldToTryOneWayWhileItIsMeasured) {
  retune(scope, {{7, 6}, {8, 1}});
  measure_ways(7, 4);
  call();
  EXPECT_EQ(told_in_plan, 4);
  EXPECT_EQ(told_in_run, 1) << "others go by what is stored";
  measure_ways(7, -1);
  call();
  EXPECT_EQ(told_in_plan, -1) << "its own, whatever is stored";
  measure_ways(7, 8);
  call();
  EXPECT_EQ(told_in_plan, -1) << "there is no way 8";
  retune(scope, {{8, 2}});
  call();
  EXPECT_EQ(told_in_run, 2) << "stored while measuring";
  measure_ways({}, 2);
  call();
  EXPECT_EQ(told_in_plan, 2) << "all of them";
  EXPECT_EQ(told_in_run, 2);
  measure_ways({}, 5);
  call();
  EXPECT_EQ(told_in_plan, 5);
  EXPECT_EQ(told_in_run, -1) << "there is no way 5 of three";
  stop_measuring();
  retune(scope, {{7, 6}});
  call();
  EXPECT_EQ(told_in_plan, 6);
  EXPECT_EQ(told_in_run, -1);
}

TEST_F(Asking, IsMeasuredAlsoIfItIsLoadedMeanwhile) {
  measure_ways({}, {});
  static const opdock_op late_op = *asking_op();
  TestFunction late(&late_op);
  late.resolver.tuning = intern_tuning(scope_of("late"), {});
  ASSERT_EQ(late.invoke({}), OPDOCK_OK) << late.error;
  EXPECT_EQ(take_asked().size(), 2u);
}

TEST_F(Asking, MayBeMeasuredWhileThreadsCall) {
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      TestFunction mine(asking_op());
      mine.resolver.tuning = f.resolver.tuning;
      while (!ends) ASSERT_EQ(mine.invoke({}), OPDOCK_OK) << mine.error;
    });
  }
  for (int i = 0; i < 100; ++i) {
    measure_ways(i % 3 == 0 ? std::nullopt : std::optional<uint64_t>(7), i % 8);
    take_asked();
    if (i % 10 == 0) stop_measuring();
    retune(scope, {{7, i % 8}});
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(Answers, AreNoneForAnOpThatIsNoPlugins) {
  static const opdock_op op = *asking_op();
  TestFunction f(&op);
  ASSERT_EQ(f.invoke({}), OPDOCK_OK) << f.error;
  EXPECT_EQ(told_in_plan, -1);
}

}  // namespace
}  // namespace opdock
