// Tests tensors without elements, whose other sizes and strides may have any value. Built so that
// signed overflow ends the program, because the results would be the same with an overflow.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "call/call.h"
#include "call/tensor_check.h"
#include "opdock/plugin.hpp"
#include "schema/shape_rule.h"
#include "support.h"

namespace opdock {
namespace {

using namespace testing_support;
using A = Arguments;

constexpr int64_t kHuge = int64_t{1} << 40;

struct Empty {
  std::vector<int64_t> shape, strides;
};

const Empty kEmpty[] = {
    {{0}, {0}},
    {{0, 3}, {0, 0}},
    {{0, 3}, {7, -5}},
    {{0, kHuge, kHuge}, {0, kHuge, 1}},
    {{kHuge, kHuge, 0}, {int64_t{1} << 62, int64_t{1} << 62, 7}},
    {{kHuge, 0, kHuge}, {INT64_MIN, INT64_MIN, INT64_MIN}},
    {{INT64_MAX, INT64_MAX, 0}, {INT64_MAX, INT64_MAX, INT64_MAX}},
};

opdock_tensor tensor_of(const Empty& empty, char* data) {
  return {data,
          kCpu,
          static_cast<int32_t>(empty.shape.size()),
          kF32,
          const_cast<int64_t*>(empty.shape.data()),
          const_cast<int64_t*>(empty.strides.data()),
          0};
}

TEST(Empty, IsCheckedWithoutOverflow) {
  char memory[16];
  const opdock_tensor all = *A().tensor({4}, kF32, {1}, memory);
  for (const Empty& empty : kEmpty) {
    for (char* data : {memory, static_cast<char*>(nullptr)}) {
      const opdock_tensor x = tensor_of(empty, data);
      EXPECT_EQ(check_tensor(&x, 0), TensorProblem::kNone);
      EXPECT_EQ(self_overlap(x.ndim, x.shape, x.strides), "");
      EXPECT_EQ(views::shared_memory(x, x), views::Overlap::kNone);
      EXPECT_EQ(views::shared_memory(x, all), views::Overlap::kNone);
      EXPECT_EQ(views::shared_memory(all, x), views::Overlap::kNone);
    }
  }
  // A single element, whose strides do not matter either.
  const Empty one{{1, 1}, {-INT64_MAX, INT64_MAX}};
  const opdock_tensor x = tensor_of(one, memory);
  EXPECT_EQ(check_tensor(&x, 0), TensorProblem::kNone);
  EXPECT_EQ(views::shared_memory(x, all), views::Overlap::kShared);
  const Empty far{{3, 3}, {INT64_MIN, 1}};
  const opdock_tensor y = tensor_of(far, memory);
  EXPECT_EQ(check_tensor(&y, 0), TensorProblem::kTooLarge);
}

TEST(Empty, PassesAPluginsChecks) {
  char memory[16];
  for (const Empty& empty : kEmpty) {
    const opdock_tensor raw = tensor_of(empty, memory + 1);
    const Tensor x(&raw);
    EXPECT_TRUE(x.is_empty());
    EXPECT_EQ(x.numel(), 0);
    EXPECT_TRUE(x.is_contiguous());
    EXPECT_NO_THROW(
        check(x, "x").contiguous().contiguous_last_dim().aligned(16).no_overlap_with(x));
    const Layout like = x.like();
    EXPECT_EQ(std::vector<int64_t>(like.shape, like.shape + like.ndim), empty.shape);
    EXPECT_EQ(like.ndim, x.ndim());
  }
}

TEST(Empty, PassesShapeRules) {
  const Schema schema = *parse_schema("f(Tensor x) -> Tensor", nullptr);
  char memory[16];
  for (const char* text : {"like x", "[x.shape]"}) {
    const ShapeRule rule = *parse_shape_rule(text, schema, schema.returns[0], nullptr);
    for (const Empty& empty : kEmpty) {
      const opdock_tensor x = tensor_of(empty, memory);
      const opdock_value args[] = {A::value(&x)};
      opdock_output out;
      std::string problem;
      EXPECT_TRUE(evaluate(rule, schema, args, 0, &out, &problem)) << problem;
      EXPECT_EQ(std::vector<int64_t>(out.shape, out.shape + out.ndim), empty.shape);
    }
    const Empty large{{kHuge, kHuge}, {0, 0}};
    const opdock_tensor x = tensor_of(large, memory);
    const opdock_value args[] = {A::value(&x)};
    opdock_output out;
    std::string problem;
    EXPECT_FALSE(evaluate(rule, schema, args, 0, &out, &problem));
    EXPECT_EQ(problem, "the shape rule overflows 64 bits");
  }
}

void copy_plan(Plan& plan, Tensor x) {
  check(x, "x").contiguous();
  plan.output(x.like());
}
void copy_run(Call&, Results out, Tensor x) {
  if (out[0].numel() != x.numel()) throw Error(OPDOCK_INTERNAL, "another number of elements");
}

}  // namespace
}  // namespace opdock

namespace {
OPDOCK_OP(copy_empty, opdock::copy_plan, nullptr, opdock::copy_run)
}

namespace opdock {
namespace {

TEST(Empty, GoesThroughACall) {
  static const opdock_op op =
      make_op("copy_empty(Tensor x) -> Tensor", opdock_copy_empty_plan, opdock_copy_empty_run);
  TestFunction f(&op);
  char memory[16];
  for (const Empty& empty : kEmpty) {
    const opdock_tensor x = tensor_of(empty, memory);
    const opdock_value arg = A::value(&x);
    opdock_tensor* made[] = {nullptr};  // allocated by the host
    EXPECT_EQ(invoke(f.function, nullptr, &arg, 1, made, 1, {f.error, sizeof f.error}), OPDOCK_OK)
        << f.error;
    ASSERT_NE(made[0], nullptr);
    EXPECT_EQ(made[0]->data, nullptr);
    free_output(made[0]);
    opdock_tensor own = tensor_of(empty, memory);  // the caller's, at the address of x
    EXPECT_EQ(f.invoke({arg}, {&own}), OPDOCK_OK) << f.error;
  }
}

}  // namespace
}  // namespace opdock
