// The call path on the CPU: what an op sees, what comes back.
// SPDX-License-Identifier: Apache-2.0
#include "call/call.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support.h"

namespace opdock {
namespace {

using namespace testing_support;
using A = Arguments;

opdock_status run_double(const opdock_call*, const opdock_value* args, uint32_t,
                         opdock_tensor* const* outputs, uint32_t) {
  const opdock_tensor& x = *args[0].as.tensor;
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    static_cast<float*>(outputs[0]->data)[i] = 2 * static_cast<float*>(x.data)[i];
  }
  return OPDOCK_OK;
}

TEST(Call, PlansAndRunsIntoTheCallersOutput) {
  static const opdock_op op = [] {
    opdock_op o = make_op("double(Tensor x) -> Tensor");
    o.plan = plan_like;
    o.run = run_double;
    return o;
  }();
  TestFunction f(&op);
  A a;
  opdock_tensor* x = a.tensor({3});
  for (int i = 0; i < 3; ++i) static_cast<float*>(x->data)[i] = static_cast<float>(i + 1);
  opdock_value args[] = {A::value(x)};
  opdock_output planned[1];
  opdock_plan plan{};
  plan.struct_size = sizeof plan;
  plan.outputs = planned;
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
  static const opdock_op op = [] {
    opdock_op o = make_op("double(Tensor x) -> Tensor");
    o.plan = plan_like;
    o.run = run_double;
    return o;
  }();
  TestFunction f(&op);
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

}  // namespace
}  // namespace opdock
