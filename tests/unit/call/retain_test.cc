// Tests arguments that an op keeps after the call, and calls that must end early.
// SPDX-License-Identifier: Apache-2.0
#include "call/retain.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "opdock/cancel.h"
#include "support.h"

namespace opdock {
namespace {

using namespace testing_support;
using A = Arguments;

opdock_retained* held = nullptr;

// which: 0 the tensor, 1 the last element of the list, 2 a tensor of the op itself, 3 none.
opdock_status run_keep(const opdock_call* call, const opdock_value* args, uint32_t, opdock_value*,
                       uint32_t) {
  const auto* table = static_cast<const opdock_retain*>(call->host->get_extension(OPDOCK_RETAIN_1));
  const opdock_list& list = *args[1].as.list;
  opdock_tensor own = *args[0].as.tensor;
  const opdock_tensor* const which[] = {args[0].as.tensor, list.data[list.count - 1].as.tensor,
                                        &own, nullptr};
  return table->retain(call, which[args[2].as.i64], &held);
}
opdock_op keep_op(uint32_t flags) {
  opdock_op o = make_op("keep(Tensor x, Tensor[] xs, int which) -> ()", flags);
  o.run = run_keep;
  return o;
}

// Counts the tensors that are kept, and remembers the last one.
struct Keeper {
  Keeper() {
    options.struct_size = sizeof options;
    options.keeper = &table;
  }
  std::atomic<int> kept{0};
  const opdock_tensor* last = nullptr;
  opdock_status answer = OPDOCK_OK;
  opdock_keeper table{sizeof table, 0, this, retain, release};
  opdock_call_options options{};

  static opdock_status retain(void* context, const opdock_tensor* tensor, void** out) {
    Keeper& self = *static_cast<Keeper*>(context);
    if (self.answer != OPDOCK_OK) return self.answer;
    ++self.kept;
    self.last = tensor;
    *out = &self;
    return OPDOCK_OK;
  }
  static void release(void* kept) { --static_cast<Keeper*>(kept)->kept; }
};

struct KeepCall {
  explicit KeepCall(const opdock_op* op) : f(op) {
    x = a.tensor({2});
    y = a.tensor({3});
  }
  opdock_status operator()(int64_t which, const opdock_call_options* options) {
    return f.invoke(
        {A::value(x), a.list({A::value(a.tensor({1})), A::value(y)}), A::integer(which)}, {},
        options);
  }
  TestFunction f;
  A a;
  opdock_tensor *x, *y;
};

const opdock_retain* extension() {
  return static_cast<const opdock_retain*>(host_table()->get_extension(OPDOCK_RETAIN_1));
}

TEST(Retain, KeepsAnArgumentUntilAnotherThreadLetsGo) {
  static const opdock_op op = keep_op(OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_RETAINS);
  KeepCall call(&op);
  Keeper keeper;
  for (const int64_t which : {0, 1}) {
    ASSERT_EQ(call(which, &keeper.options), OPDOCK_OK) << call.f.error;
    EXPECT_EQ(keeper.last, which == 0 ? call.x : call.y);
    EXPECT_EQ(keeper.kept, 1);
    std::thread([] { extension()->release(held); }).join();
    EXPECT_EQ(keeper.kept, 0);
  }
}

TEST(Retain, SaysWhyItCannot) {
  static const opdock_op op = keep_op(OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_RETAINS);
  static const opdock_op unflagged = keep_op(OPDOCK_OP_THREAD_SAFE);
  KeepCall call(&op), other(&unflagged);
  Keeper keeper;
  EXPECT_EQ(call(0, nullptr), OPDOCK_UNSUPPORTED);
  EXPECT_NE(std::string(call.f.error).find("options.keeper"), std::string::npos) << call.f.error;
  EXPECT_EQ(call(2, &keeper.options), OPDOCK_INTERNAL);
  EXPECT_NE(std::string(call.f.error).find("no argument"), std::string::npos) << call.f.error;
  EXPECT_EQ(call(3, &keeper.options), OPDOCK_INTERNAL);
  EXPECT_EQ(other(0, &keeper.options), OPDOCK_INTERNAL);
  EXPECT_NE(std::string(other.f.error).find("flag retains"), std::string::npos) << other.f.error;
  keeper.answer = OPDOCK_OUT_OF_MEMORY;
  EXPECT_EQ(call(0, &keeper.options), OPDOCK_OUT_OF_MEMORY);
  EXPECT_NE(std::string(call.f.error).find("cannot keep"), std::string::npos) << call.f.error;
  EXPECT_EQ(keeper.kept, 0);
}

// ---- a call that waits asks whether it was cancelled

opdock_status run_waiting(const opdock_call* call, const opdock_value*, uint32_t, opdock_value*,
                          uint32_t) {
  const auto* table = static_cast<const opdock_cancel*>(call->host->get_extension(OPDOCK_CANCEL_1));
  for (int i = 0; i < 3; ++i) {
    if (table->is_cancelled(call) == 0) continue;
    return call->host->set_error(call, OPDOCK_CANCELLED, "stopped on request");
  }
  return OPDOCK_OK;
}

TEST(Cancel, EndsACallThatAsks) {
  static const opdock_op op = make_op("wait() -> ()", plan_nothing, run_waiting, nullptr,
                                      OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_MAY_BLOCK);
  TestFunction f(&op);
  EXPECT_EQ(f.invoke({}), OPDOCK_OK) << f.error;
  EXPECT_EQ(f.resolver.asked, 3);
  f.resolver.wants_end = true;
  EXPECT_EQ(f.invoke({}), OPDOCK_CANCELLED);
  EXPECT_NE(std::string(f.error).find("stopped on request"), std::string::npos) << f.error;
  EXPECT_EQ(f.resolver.asked, 4);
  const auto* table =
      static_cast<const opdock_cancel*>(host_table()->get_extension("opdock.cancel/1"));
  EXPECT_EQ(table->is_cancelled(nullptr), 0);
}

}  // namespace
}  // namespace opdock
