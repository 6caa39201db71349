// Tests the call path on the CPU: what an op sees and what the caller gets back.
// SPDX-License-Identifier: Apache-2.0
#include "call/call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "opdock/parallel.h"
#include "support.h"

namespace opdock {
namespace {

using namespace testing_support;
using A = Arguments;

TEST(Call, PlansAndRunsIntoTheCallersOutput) {
  TestFunction f(double_op());
  A a;
  opdock_tensor* x = a.tensor({3});
  for (int i = 0; i < 3; ++i) static_cast<float*>(x->data)[i] = static_cast<float>(i + 1);
  opdock_value args[] = {A::value(x)};
  opdock_output planned[1];
  opdock_plan plan{};
  plan.struct_size = sizeof plan;
  plan.outputs = planned;
  plan.room = 1;
  ASSERT_EQ(plan_call(f.function, nullptr, args, 1, &plan, {f.error, sizeof f.error}), OPDOCK_OK)
      << f.error;
  ASSERT_EQ(plan.num_outputs, 1u);
  EXPECT_EQ(planned[0].ndim, 1);
  EXPECT_EQ(planned[0].shape[0], 3);
  opdock_tensor* y = a.tensor({3});
  opdock_tensor* outputs[] = {y};
  ASSERT_EQ(run_planned(f.function, nullptr, &plan, args, 1, outputs, 1, {f.error, sizeof f.error}),
            OPDOCK_OK)
      << f.error;
  EXPECT_EQ(static_cast<float*>(y->data)[2], 6.0f);
  EXPECT_EQ(f.resolver.resolved, 1);
}

TEST(Call, AllocatesOutputsThatAreNull) {
  TestFunction f(double_op());
  A a;
  opdock_value args[] = {A::value(a.tensor({3}))};
  opdock_tensor* outputs[] = {nullptr};
  ASSERT_EQ(invoke(f.function, nullptr, args, 1, outputs, 1, {f.error, sizeof f.error}), OPDOCK_OK)
      << f.error;
  ASSERT_NE(outputs[0], nullptr);
  EXPECT_EQ(outputs[0]->shape[0], 3);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(outputs[0]->data) % 256, 0u);
  free_output(outputs[0]);
}

TEST(Call, OutputsAreAlignedAsPlanned) {
  static const opdock_op op = [] {
    opdock_op o = *double_op();
    o.plan = [](const opdock_call* call, const opdock_value* args, uint32_t count,
                opdock_plan* plan) {
      const opdock_status status = double_op()->plan(call, args, count, plan);
      plan->outputs[0].alignment = 8192;
      return status;
    };
    return o;
  }();
  TestFunction f(&op);
  A a;
  opdock_value args[] = {A::value(a.tensor({3}))};
  opdock_tensor* outputs[] = {nullptr};
  ASSERT_EQ(invoke(f.function, nullptr, args, 1, outputs, 1, {f.error, sizeof f.error}), OPDOCK_OK)
      << f.error;
  float* const memory = static_cast<float*>(outputs[0]->data);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 8192, 0u);
  EXPECT_EQ(f.invoke({args[0]}, {a.tensor({3}, kF32, {1}, memory)}), OPDOCK_OK) << f.error;
  EXPECT_EQ(f.invoke({args[0]}, {a.tensor({3}, kF32, {1}, memory + 2)}), OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(f.error).find("found memory 8 bytes past a multiple of 8192"),
            std::string::npos)
      << f.error;
  EXPECT_EQ(f.invoke({args[0]}, {a.tensor({3}, kF32, {1}, memory + 1024)}),
            OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(f.error).find("4096 bytes past a multiple of 8192"), std::string::npos)
      << f.error;
  free_output(outputs[0]);
}

// ---- phases

std::atomic<int> prepared{0};
std::atomic<int> inside{0};
std::atomic<int> most_inside{0};

opdock_status prepare_count(const opdock_call*) {
  ++prepared;
  return OPDOCK_OK;
}
opdock_status run_slowly(const opdock_call*, const opdock_value*, uint32_t, opdock_value*,
                         uint32_t) {
  int now = ++inside;
  int known = most_inside;
  while (known < now && !most_inside.compare_exchange_weak(known, now)) {
  }
  std::this_thread::yield();
  --inside;
  return OPDOCK_OK;
}

void call_from_threads(TestFunction& f, int threads, int calls) {
  A a;
  opdock_value x = A::value(a.tensor({4}));
  std::atomic<int> failed{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < threads; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < calls; ++i) {
        char error[256];
        if (invoke(f.function, nullptr, &x, 1, nullptr, 0, {error, sizeof error}) != OPDOCK_OK) {
          ++failed;
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failed, 0);
}

TEST(Call, PreparesOnceForSixteenThreads) {  // OPDOCK-H-4
  static const opdock_op op =
      make_op("p(Tensor x) -> ()", plan_nothing, run_nothing, prepare_count);
  prepared = 0;
  TestFunction f(&op), g(&op);  // two functions of one op share its preparation
  call_from_threads(f, 16, 100);
  call_from_threads(g, 2, 10);
  EXPECT_EQ(prepared, 1);
}

TEST(Call, SerialisesAnOpThatIsNotThreadSafe) {
  static const opdock_op op = make_op("s(Tensor x) -> ()", plan_nothing, run_slowly, nullptr, 0);
  TestFunction f(&op);
  most_inside = 0;
  call_from_threads(f, 8, 200);
  EXPECT_EQ(most_inside, 1);
}

struct Seen {
  opdock_call call;
  uint64_t state[8];
};
Seen seen;

opdock_status plan_everything(const opdock_call*, const opdock_value*, uint32_t,
                              opdock_plan* plan) {
  plan->workspace_bytes = 1000;
  plan->workspace_alignment = 512;
  for (uint64_t i = 0; i < 8; ++i) plan->state[i] = i * 11;
  return OPDOCK_OK;
}
opdock_status run_everything(const opdock_call* call, const opdock_value*, uint32_t, opdock_value*,
                             uint32_t) {
  seen.call = *call;
  std::memcpy(seen.state, call->state, sizeof seen.state);
  std::memset(call->workspace, 7, call->workspace_bytes);
  return OPDOCK_OK;
}
const opdock_op& everything() {
  static const opdock_op op = make_op("e(Tensor x) -> ()", plan_everything, run_everything);
  return op;
}

TEST(Call, GivesRunWhatPlanAskedFor) {
  TestFunction f(&everything());
  A a;
  ASSERT_EQ(f.invoke({A::value(a.tensor({4}))}), OPDOCK_OK) << f.error;
  EXPECT_EQ(seen.call.struct_size, sizeof(opdock_call));
  EXPECT_EQ(seen.call.host, host_table());
  EXPECT_EQ(seen.call.device.type, OPDOCK_CPU);
  EXPECT_EQ(seen.call.facts->type, OPDOCK_CPU);
  EXPECT_EQ(seen.call.facts->warp_size, 1u);
  EXPECT_GE(seen.call.facts->multiprocessors, 1u);
  EXPECT_EQ(seen.call.stream, nullptr);
  EXPECT_EQ(seen.call.workspace_bytes, 1000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(seen.call.workspace) % 512, 0u);
  EXPECT_EQ(seen.state[7], 77u);
}

// Called once while an op uses its workspace.
std::function<void()> within;

opdock_status plan_marks(const opdock_call*, const opdock_value*, uint32_t, opdock_plan* plan) {
  plan->workspace_bytes = 64;
  return OPDOCK_OK;
}
opdock_status run_marks(const opdock_call* call, const opdock_value*, uint32_t, opdock_value*,
                        uint32_t) {
  uint8_t* const own = static_cast<uint8_t*>(call->workspace);
  const uint8_t mark = within ? 1 : 2;
  std::memset(own, mark, 64);
  if (const auto next = std::exchange(within, nullptr)) next();
  return std::count(own, own + 64, mark) == 64 ? OPDOCK_OK : OPDOCK_INTERNAL;
}

// A hook or a reference may call an op within a call.
TEST(Call, WithinACallHasAWorkspaceOfItsOwn) {
  static const opdock_op op = make_op("w(Tensor x) -> ()", plan_marks, run_marks);
  TestFunction outer(&op), inner(&op);
  A a;
  const opdock_value x = A::value(a.tensor({2}));
  within = [&] { EXPECT_EQ(inner.invoke({x}), OPDOCK_OK) << inner.error; };
  EXPECT_EQ(outer.invoke({x}), OPDOCK_OK)
      << outer.error << "; the call within wrote into its memory";
}

TEST(Call, UsesTheCallersWorkspace) {
  TestFunction f(&everything());
  A a;
  alignas(512) static char memory[2048];
  opdock_call_options options{};
  options.struct_size = sizeof options;
  options.workspace = memory;
  options.workspace_bytes = sizeof memory;
  opdock_value x = A::value(a.tensor({4}));
  ASSERT_EQ(f.invoke({x}, {}, &options), OPDOCK_OK) << f.error;
  EXPECT_EQ(seen.call.workspace, memory);
  options.workspace_bytes = 999;
  EXPECT_EQ(f.invoke({x}, {}, &options), OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(f.error).find("found 999 bytes"), std::string::npos) << f.error;
  options.workspace_bytes = 1500;
  options.workspace = memory + 64;
  EXPECT_EQ(f.invoke({x}, {}, &options), OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(f.error).find("64 past a multiple of 512"), std::string::npos) << f.error;
  // The options of a program with a smaller struct: no workspace is read from them.
  options.struct_size = offsetof(opdock_call_options, workspace);
  EXPECT_EQ(f.invoke({x}, {}, &options), OPDOCK_OK) << f.error;
  EXPECT_NE(seen.call.workspace, options.workspace);
}

// ---- ops that fail

struct Answer {
  opdock_status status;
  const char* text;
} answer;

opdock_status run_answer(const opdock_call* call, const opdock_value*, uint32_t, opdock_value*,
                         uint32_t) {
  if (answer.text == nullptr) return answer.status;
  return call->host->set_error(call, answer.status, answer.text);
}

TEST(Call, PassesOnStatusAndText) {
  static const opdock_op op = make_op("a(Tensor x) -> ()", plan_nothing, run_answer);
  TestFunction f(&op);
  A a;
  opdock_value x = A::value(a.tensor({4}));
  answer = {OPDOCK_UNSUPPORTED, "not today"};
  EXPECT_EQ(f.invoke({x}), OPDOCK_UNSUPPORTED);
  EXPECT_STREQ(f.error, "a: not today");
  answer = {OPDOCK_DEVICE_ERROR, nullptr};
  EXPECT_EQ(f.invoke({x}), OPDOCK_DEVICE_ERROR);
  EXPECT_NE(
      std::string(f.error).find("run of plugin \"test\" failed with status 4 and gave no text"),
      std::string::npos)
      << f.error;
  for (opdock_status wild : {11, -1, 12345}) {
    answer = {wild, nullptr};
    EXPECT_EQ(f.invoke({x}), OPDOCK_INTERNAL);
    EXPECT_NE(std::string(f.error).find("which is no status"), std::string::npos) << f.error;
  }
  // No buffer, a tiny one, and one that would cut a character in two.
  answer = {OPDOCK_UNSUPPORTED, "\xc3\xa4\xc3\xb6"};
  EXPECT_EQ(invoke(f.function, nullptr, &x, 1, nullptr, 0, {}), OPDOCK_UNSUPPORTED);
  char tiny[7] = "??????";
  EXPECT_EQ(invoke(f.function, nullptr, &x, 1, nullptr, 0, {tiny, 1}), OPDOCK_UNSUPPORTED);
  EXPECT_STREQ(tiny, "");
  EXPECT_EQ(invoke(f.function, nullptr, &x, 1, nullptr, 0, {tiny, 7}), OPDOCK_UNSUPPORTED);
  EXPECT_STREQ(tiny, "a: \xc3\xa4");
  // On success the buffer is not changed.
  answer = {OPDOCK_OK, nullptr};
  std::strcpy(tiny, "kept");
  EXPECT_EQ(invoke(f.function, nullptr, &x, 1, nullptr, 0, {tiny, 7}), OPDOCK_OK);
  EXPECT_STREQ(tiny, "kept");
}

// ---- plans that break the interface

std::function<void(opdock_plan*)> break_it;
opdock_status plan_spoilt(const opdock_call* call, const opdock_value* args, uint32_t n,
                          opdock_plan* plan) {
  plan_like(call, args, n, plan);
  break_it(plan);
  return OPDOCK_OK;
}

TEST(Call, RefusesAPlanThatCannotBe) {  // OPDOCK-P-1
  static const opdock_op op = make_op("b(Tensor x) -> Tensor", plan_spoilt);
  TestFunction f(&op);
  A a;
  opdock_value x = A::value(a.tensor({2, 3}));
  const std::pair<std::function<void(opdock_plan*)>, const char*> rows[] = {
      {[](opdock_plan* p) { p->outputs[0].ndim = 17; }, "output 0: found 17 dimensions"},
      {[](opdock_plan* p) { p->outputs[0].ndim = -1; }, "output 0: found -1 dimensions"},
      {[](opdock_plan* p) { p->outputs[0].shape[0] = -1; }, "negative size"},
      {[](opdock_plan* p) { p->outputs[0].shape[0] = INT64_MAX; }, "2^63"},
      {[](opdock_plan* p) { p->outputs[0].dtype = {}; }, "1 bit"},
      {[](opdock_plan* p) { p->outputs[0].alignment = 48; }, "an alignment of 48, wanted a power"},
      {[](opdock_plan* p) { p->outputs[0].alignment = uint64_t{1} << 31; }, "of at most 2^30"},
      {[](opdock_plan* p) { p->workspace_alignment = 48; }, "power of two"},
      {[](opdock_plan* p) { p->workspace_bytes = UINT64_MAX; }, "2^63"},
  };
  for (const auto& [change, text] : rows) {
    break_it = change;
    EXPECT_EQ(f.invoke({x}, {nullptr}), OPDOCK_INTERNAL) << text;
    EXPECT_NE(std::string(f.error).find(text), std::string::npos) << f.error;
    EXPECT_NE(std::string(f.error).find("report it to the plugin's author"), std::string::npos);
  }
  // What the plugin must not change is restored.
  break_it = [](opdock_plan* p) {
    p->num_outputs = 5;
    p->outputs = nullptr;
  };
  opdock_tensor* output = a.tensor({2, 3});
  EXPECT_EQ(f.invoke({x}, {output}), OPDOCK_OK) << f.error;
}

TEST(Call, LeavesNothingAllocatedWhenItFails) {
  static const opdock_op op = make_op("c(Tensor x) -> Tensor", plan_like, run_answer);
  TestFunction f(&op);
  A a;
  opdock_value x = A::value(a.tensor({2, 3}));
  answer = {OPDOCK_UNSUPPORTED, "no"};
  opdock_tensor* outputs[] = {nullptr};
  EXPECT_EQ(invoke(f.function, nullptr, &x, 1, outputs, 1, {}), OPDOCK_UNSUPPORTED);
  EXPECT_EQ(outputs[0], nullptr);
}

TEST(Call, PlansOverShapesWithoutData) {
  static const opdock_op op = make_op("d(Tensor x) -> Tensor", plan_like);
  TestFunction f(&op);
  A a;
  opdock_tensor* x = a.tensor({2, 3});
  x->data = nullptr;
  opdock_output planned[1];
  opdock_plan plan{};
  plan.struct_size = sizeof plan;
  plan.outputs = planned;
  plan.room = 1;
  opdock_value shape_only = A::value(x, OPDOCK_VALUE_NO_DATA);
  EXPECT_EQ(f.plan({shape_only}, &plan), OPDOCK_OK) << f.error;
  EXPECT_EQ(planned[0].shape[1], 3);
  opdock_tensor* outputs[] = {a.tensor({2, 3})};
  EXPECT_EQ(run_planned(f.function, nullptr, &plan, &shape_only, 1, outputs, 1,
                        {f.error, sizeof f.error}),
            OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(f.error).find("argument 'x': found a shape without data"),
            std::string::npos)
      << f.error;
  opdock_value real = A::value(a.tensor({2, 3}));
  EXPECT_EQ(
      run_planned(f.function, nullptr, &plan, &real, 1, outputs, 1, {f.error, sizeof f.error}),
      OPDOCK_OK)
      << f.error;
}

// ---- checks that a plan without data skips

// An op that requires memory aligned to 16 bytes, as kernels do, and that counts its calls.
int planned = 0, run = 0;
uint64_t seen_state = 0;
opdock_status plan_aligned(const opdock_call* call, const opdock_value* args, uint32_t n,
                           opdock_plan* plan) {
  ++planned;
  const bool real = (args[0].flags & OPDOCK_VALUE_NO_DATA) == 0;
  if (real && reinterpret_cast<uintptr_t>(args[0].as.tensor->data) % 16 != 0) {
    return call->host->set_error(call, OPDOCK_UNSUPPORTED, "argument 'x': misaligned");
  }
  plan->state[7] = real ? 2 : 1;
  plan->flags = 77;  // a plugin must not set flags
  return plan_like(call, args, n, plan);
}
opdock_status run_aligned(const opdock_call* call, const opdock_value*, uint32_t, opdock_value*,
                          uint32_t) {
  ++run;
  seen_state = static_cast<const uint64_t*>(call->state)[7];
  return OPDOCK_OK;
}
const opdock_op& aligned_op() {
  static const opdock_op op =
      make_op("aligned(Tensor x, Tensor[] more) -> Tensor", plan_aligned, run_aligned);
  return op;
}

// A caller's plan with room for one output; struct_size limits how much of the struct the host may
// use.
struct OwnPlan {
  explicit OwnPlan(uint32_t size) {
    plan.known.struct_size = size;
    plan.known.outputs = &output;
    plan.known.room = 1;
    plan.known.flags = 0xabcd;
    std::memset(plan.behind, 0x5a, sizeof plan.behind);
  }
  opdock_output output{};
  struct {
    opdock_plan known{};
    unsigned char behind[16];
  } plan;
};

struct AlignedCall {
  AlignedCall() : f(&aligned_op()) {
    x = a.tensor({4});
    odd = a.tensor({4}, kF32, {1}, static_cast<float*>(a.tensor({8})->data) + 1);
    planned = run = 0;
  }
  std::vector<opdock_value> args(const opdock_tensor* first, uint32_t flags, uint32_t more_flags) {
    return {A::value(first, flags), a.list({A::value(x, more_flags)})};
  }
  opdock_status plan(OwnPlan* own, const std::vector<opdock_value>& values) {
    return f.plan(values, &own->plan.known);
  }
  opdock_status run_with(const OwnPlan& own, const std::vector<opdock_value>& values,
                         opdock_tensor* output) {
    f.error[0] = '\0';
    return run_planned(f.function, nullptr, &own.plan.known, values.data(), 2, &output, 1,
                       {f.error, sizeof f.error});
  }
  A a;
  TestFunction f;
  opdock_tensor *x, *odd;
};

TEST(Call, PlansAgainWhatWasPlannedOverShapes) {
  constexpr uint32_t kShape = OPDOCK_VALUE_NO_DATA;
  for (const auto& [first, more] : {std::pair{kShape, 0u}, {0u, kShape}, {kShape, kShape}}) {
    AlignedCall call;
    OwnPlan own(sizeof(opdock_plan));
    ASSERT_EQ(call.plan(&own, call.args(call.x, first, more)), OPDOCK_OK) << call.f.error;
    EXPECT_EQ(own.plan.known.flags, OPDOCK_PLAN_OF_SHAPES);
    EXPECT_EQ(call.run_with(own, call.args(call.odd, 0, 0), call.a.tensor({4})),
              OPDOCK_UNSUPPORTED);
    EXPECT_STREQ(call.f.error, "aligned: argument 'x': misaligned");
    EXPECT_EQ(run, 0);
    EXPECT_EQ(call.run_with(own, call.args(call.x, 0, 0), call.a.tensor({4})), OPDOCK_OK)
        << call.f.error;
    EXPECT_EQ(run, 1);
    EXPECT_EQ(seen_state, 2u);  // from the plan over the data
    // A plan over shapes has the conditions of a plan over data.
    EXPECT_EQ(call.run_with(own, call.args(call.x, kShape, 0), call.a.tensor({4})),
              OPDOCK_INVALID_ARGUMENT);
    EXPECT_EQ(call.run_with(own, call.args(call.x, 0, 0), nullptr), OPDOCK_INVALID_ARGUMENT);
    EXPECT_EQ(call.run_with(own, call.args(call.x, 0, 0), call.x), OPDOCK_INVALID_ARGUMENT);
    EXPECT_EQ(run, 1);
  }
  AlignedCall call;  // with data, planning once is enough
  OwnPlan own(sizeof(opdock_plan));
  ASSERT_EQ(call.plan(&own, call.args(call.x, 0, 0)), OPDOCK_OK) << call.f.error;
  EXPECT_EQ(own.plan.known.flags, 0u);
  EXPECT_EQ(call.run_with(own, call.args(call.x, 0, 0), call.a.tensor({4})), OPDOCK_OK);
  EXPECT_EQ(planned, 1);
}

// A program's opdock_plan may have fewer members than the host's, or more.
TEST(Call, TakesPlansOfEverySizeFromTheFirstDraftsOn) {
  constexpr uint32_t kMin = offsetof(opdock_plan, flags);
  for (uint32_t size = 0; size < kMin; ++size) {
    AlignedCall call;
    OwnPlan own(size);
    EXPECT_EQ(call.plan(&own, call.args(call.x, 0, 0)), OPDOCK_INVALID_ARGUMENT) << size;
    EXPECT_NE(std::string(call.f.error).find("struct_size of at least 104"), std::string::npos)
        << call.f.error;
    own.plan.known.num_outputs = 1;
    EXPECT_EQ(call.run_with(own, call.args(call.x, 0, 0), call.a.tensor({4})),
              OPDOCK_INVALID_ARGUMENT)
        << size;
    EXPECT_EQ(planned, 0);
  }
  for (uint32_t size = kMin; size <= sizeof(opdock_plan) + 16; ++size) {
    AlignedCall call;
    OwnPlan own(size);
    ASSERT_EQ(call.plan(&own, call.args(call.x, OPDOCK_VALUE_NO_DATA, 0)), OPDOCK_OK)
        << size << ": " << call.f.error;
    EXPECT_EQ(own.plan.known.struct_size, size);
    EXPECT_EQ(own.plan.known.num_outputs, 1u);
    EXPECT_EQ(own.plan.known.outputs, &own.output);
    EXPECT_EQ(own.plan.known.state[7], 1u);
    EXPECT_EQ(own.output.shape[0], 4);
    // Nothing beyond the caller's declared size is read or written.
    const bool has_flags = size >= kMin + sizeof(uint32_t);
    if (size == kMin || has_flags) {
      EXPECT_EQ(own.plan.known.flags, has_flags ? OPDOCK_PLAN_OF_SHAPES : 0xabcd) << size;
    }
    for (const unsigned char byte : own.plan.behind) EXPECT_EQ(byte, 0x5a);
    if (!has_flags) own.plan.known.flags = 0;
    EXPECT_EQ(call.run_with(own, call.args(call.odd, 0, 0), call.a.tensor({4})), OPDOCK_UNSUPPORTED)
        << size;
    EXPECT_EQ(run, 0);
    EXPECT_EQ(call.run_with(own, call.args(call.x, 0, 0), call.a.tensor({4})), OPDOCK_OK)
        << size << ": " << call.f.error;
  }
}

TEST(Call, RefusesAPlanThatWasNotMade) {
  static const opdock_op op = make_op("g(Tensor x) -> Tensor", plan_like);
  TestFunction f(&op);
  A a;
  opdock_value x = A::value(a.tensor({2, 3}));
  opdock_plan plan{};
  EXPECT_EQ(f.plan({x}, &plan), OPDOCK_INVALID_ARGUMENT);  // struct_size 0
  EXPECT_NE(std::string(f.error).find("fill in struct_size"), std::string::npos) << f.error;
  plan.struct_size = sizeof plan;
  EXPECT_EQ(f.plan({x}, &plan), OPDOCK_INVALID_ARGUMENT);  // no room for the output
  EXPECT_EQ(f.plan({x}, nullptr), OPDOCK_INVALID_ARGUMENT);
  opdock_tensor* outputs[] = {a.tensor({2, 3})};
  EXPECT_EQ(run_planned(f.function, nullptr, &plan, &x, 1, outputs, 1, {f.error, sizeof f.error}),
            OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(f.error).find("plan first"), std::string::npos) << f.error;
}

// ---- random numbers

opdock_status plan_random(const opdock_call*, const opdock_value*, uint32_t, opdock_plan* plan) {
  plan->random_numbers = 4;
  return OPDOCK_OK;
}
TEST(Call, AsksForAGeneratorWhereNumbersAreDrawn) {
  static const opdock_op op = make_op(
      "r(Tensor x) -> ()", plan_random,
      [](const opdock_call* call, const opdock_value*, uint32_t, opdock_value*, uint32_t) {
        return call->generator->seed == 5 ? OPDOCK_OK : OPDOCK_INTERNAL;
      },
      nullptr, OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_RANDOM);
  TestFunction f(&op);
  A a;
  opdock_value x = A::value(a.tensor({4}));
  EXPECT_EQ(f.invoke({x}), OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(f.error).find("no generator"), std::string::npos) << f.error;
  opdock_generator generator{};
  generator.struct_size = sizeof generator;
  generator.seed = 5;
  opdock_call_options options{};
  options.struct_size = sizeof options;
  options.generator = &generator;
  EXPECT_EQ(f.invoke({x}, {}, &options), OPDOCK_OK) << f.error;
}

// ---- what the host table refuses

opdock_status misuse(const opdock_call* call, const opdock_value* args) {
  opdock_kernel* kernel = nullptr;
  void* memory = nullptr;
  switch (args[0].as.i64) {
    case 1:
      return call->host->kernel(call, 0, &kernel);
    case 2:
      return call->host->launch(call, nullptr, nullptr);
    case 3:
      return call->host->workspace(call, 10, 0, &memory);
    case 4:
      return call->host->kernel(call, 0, nullptr);
    default:
      return OPDOCK_OK;
  }
}
opdock_status plan_misuse(const opdock_call* call, const opdock_value* args, uint32_t,
                          opdock_plan*) {
  return misuse(call, args);
}
opdock_status run_misuse(const opdock_call* call, const opdock_value* args, uint32_t, opdock_value*,
                         uint32_t) {
  return misuse(call, args);
}

TEST(Host, RefusesMisuse) {
  static const opdock_op planner = make_op("m(int what) -> ()", plan_misuse);
  static const opdock_op runner = make_op("m(int what) -> ()", plan_nothing, run_misuse);
  TestFunction f(&planner), g(&runner);
  EXPECT_EQ(f.invoke({A::integer(1)}), OPDOCK_INTERNAL);
  EXPECT_NE(std::string(f.error).find("plan, which must touch no device"), std::string::npos);
  EXPECT_EQ(f.invoke({A::integer(3)}), OPDOCK_INTERNAL);
  EXPECT_NE(std::string(f.error).find("may-allocate"), std::string::npos);
  EXPECT_EQ(g.invoke({A::integer(1)}), OPDOCK_NOT_FOUND);
  EXPECT_EQ(g.invoke({A::integer(2)}), OPDOCK_INTERNAL);
  EXPECT_EQ(g.invoke({A::integer(3)}), OPDOCK_INTERNAL);
  EXPECT_EQ(g.invoke({A::integer(4)}), OPDOCK_INTERNAL);
  EXPECT_EQ(host_table()->get_extension("opdock.gemm/2"), nullptr);
  EXPECT_NE(host_table()->get_extension(OPDOCK_PARALLEL_2), nullptr);
  EXPECT_EQ(host_table()->get_extension(nullptr), nullptr);
}

TEST(Host, LogsToTheRuntimeOfTheCall) {
  static const opdock_op op =
      make_op("l(int what) -> ()", plan_nothing,
              [](const opdock_call* call, const opdock_value*, uint32_t, opdock_value*, uint32_t) {
                call->host->log(call, 1, "from run");
                return OPDOCK_OK;
              });
  TestFunction f(&op), g(&op);
  EXPECT_EQ(f.invoke({A::integer(1)}), OPDOCK_OK) << f.error;
  EXPECT_EQ(f.resolver.logged, "1 from run");
  EXPECT_EQ(g.resolver.logged, "");
  ::testing::internal::CaptureStderr();
  host_table()->log(nullptr, 1, "of nobody's call");
  host_table()->log(nullptr, 2, "of nobody's call either");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "opdock: of nobody's call either\n");
}

// Gives up the target of a call, and runs out of memory when the next target is resolved.
class ThrowingResolver : public TestResolver {
 public:
  using TestResolver::TestResolver;
  Status resolve(const opdock_function& function, opdock_device device, Target** out) override {
    if (given_up) throw std::bad_alloc();
    return TestResolver::resolve(function, device, out);
  }
  bool give_up(const opdock_function& function, Target* target) override {
    given_up = true;
    function.forget(target);
    return true;
  }
  void end_of_call() override { ++ended; }
  bool given_up = false;
  int ended = 0;
};

TEST(Call, EndsForTheResolverAlsoIfTheNextTryThrows) {
  static const opdock_op op =
      make_op("incompatible(Tensor x) -> Tensor", plan_like,
              [](const opdock_call*, const opdock_value*, uint32_t, opdock_value*, uint32_t) {
                return opdock_status{OPDOCK_INCOMPATIBLE};
              });
  ThrowingResolver resolver(&op);
  opdock_function function("test", *parse_schema(op.schema, nullptr), &resolver);
  A a;
  const opdock_value x = A::value(a.tensor({2}));
  opdock_value result{};
  EXPECT_EQ(opdock_invoke(&function, nullptr, &x, 1, &result, 1, nullptr, 0), OPDOCK_OUT_OF_MEMORY);
  EXPECT_TRUE(resolver.given_up);
  EXPECT_EQ(resolver.ended, 1);
}

// The first op cannot make the call; the second one serves it.
class NextResolver : public TestResolver {
 public:
  NextResolver(const opdock_op* first, const opdock_op* second)
      : TestResolver(first), second_(second) {}
  Status resolve(const opdock_function& function, opdock_device device, Target** out) override {
    return given_up_ ? second_.resolve(function, device, out)
                     : TestResolver::resolve(function, device, out);
  }
  bool give_up(const opdock_function& function, Target* target) override {
    function.forget(target);
    return !std::exchange(given_up_, true);
  }

 private:
  TestResolver second_;
  bool given_up_ = false;
};

TEST(Call, AnotherProviderGetsAWorkspaceOfItsOwnSize) {
  static void* found = nullptr;
  static const opdock_op first = make_op(
      "further(Tensor(a!) x) -> ()",
      [](const opdock_call*, const opdock_value*, uint32_t, opdock_plan* plan) {
        plan->workspace_bytes = 256;
        return opdock_status{OPDOCK_OK};
      },
      [](const opdock_call*, const opdock_value*, uint32_t, opdock_value*, uint32_t) {
        return opdock_status{OPDOCK_INCOMPATIBLE};
      });
  static const opdock_op second = [] {
    opdock_op o = first;
    o.plan = [](const opdock_call*, const opdock_value*, uint32_t, opdock_plan* plan) {
      plan->workspace_bytes = 4096;
      return opdock_status{OPDOCK_OK};
    };
    o.run = [](const opdock_call* call, const opdock_value*, uint32_t, opdock_value*, uint32_t) {
      found = call->workspace_bytes == 4096 ? call->workspace : nullptr;
      return opdock_status{OPDOCK_OK};
    };
    return o;
  }();
  A a;
  const opdock_value x = A::value(a.tensor({2}));
  alignas(256) static char memory[256];
  opdock_call_options options{};
  options.struct_size = sizeof options;
  options.workspace = memory;
  options.workspace_bytes = sizeof memory;
  char error[512] = "";
  for (const bool planned : {false, true}) {
    NextResolver resolver(&first, &second);
    opdock_function function("test", *parse_schema(first.schema, nullptr), &resolver);
    opdock_plan plan{};
    plan.struct_size = sizeof plan;
    found = nullptr;
    opdock_status status = OPDOCK_OK;
    if (planned) {
      ASSERT_EQ(opdock_plan_call(&function, &options, &x, 1, &plan, error, sizeof error),
                OPDOCK_OK);
      EXPECT_EQ(plan.workspace_bytes, sizeof memory);
      status =
          opdock_run_planned(&function, &options, &plan, &x, 1, nullptr, 0, error, sizeof error);
    } else {
      status = opdock_invoke(&function, &options, &x, 1, nullptr, 0, error, sizeof error);
    }
    EXPECT_EQ(status, OPDOCK_OK) << error;
    EXPECT_NE(found, nullptr);
    EXPECT_NE(found, memory);
  }
}

TEST(Call, TheDeviceComesFromADeviceArgumentWithoutTensors) {
  static const opdock_op op = make_op("z(int n, Device? where=None) -> ()");
  TestFunction f(&op);
  opdock_value where{};
  where.tag = OPDOCK_TAG_DEVICE;
  where.as.device = {OPDOCK_CUDA, 3};
  EXPECT_EQ(f.invoke({A::integer(1), where}), OPDOCK_INCOMPATIBLE);
  EXPECT_EQ(f.invoke({A::integer(1), A::none()}), OPDOCK_OK) << f.error;
}

}  // namespace
}  // namespace opdock
