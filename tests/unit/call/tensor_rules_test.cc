// Tests the rules about tensors that an op declares and the host checks (opdock_op.tensor_rules).
// SPDX-License-Identifier: Apache-2.0
#include "call/tensor_rules.h"

#include <gtest/gtest.h>

#include "support.h"

namespace opdock::tensor_rules {
namespace {

using namespace testing_support;
using A = Arguments;

int planned = 0, ran = 0;

opdock_status plan_counted(const opdock_call* call, const opdock_value* args, uint32_t count,
                           opdock_plan* plan) {
  ++planned;
  return plan_like(call, args, count, plan);
}
opdock_status run_counted(const opdock_call*, const opdock_value*, uint32_t, opdock_value*,
                          uint32_t) {
  ++ran;
  return OPDOCK_OK;
}

const opdock_op* norm_op() {
  static const char* const rules[] = {"rows x", "like up x", "rows up", "broadcast bias",
                                      "in-place x"};
  static const char* const shapes[] = {"like x"};
  static const opdock_op op = [] {
    opdock_op made =
        make_op("norm(Tensor x, Tensor? up=None, Tensor? bias=None) -> Tensor", plan_counted,
                run_counted, nullptr, OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_IN_PLACE);
    made.num_shape_rules = 1;
    made.shape_rules = shapes;
    made.num_tensor_rules = static_cast<uint32_t>(std::size(rules));
    made.tensor_rules = rules;
    return made;
  }();
  return &op;
}

struct Case {
  const char* what;
  std::vector<opdock_value> args;
  opdock_status status;
  std::string text;
};

TEST(TensorRules, RefuseBeforePlan) {
  A a;
  opdock_tensor* const x = a.tensor({2, 3});
  opdock_tensor* const odd = a.tensor({2, 3});
  odd->byte_offset = 2;
  opdock_tensor* const odd_bias = a.tensor({3});
  odd_bias->byte_offset = 1;
  const auto with = [&](const opdock_tensor* up, const opdock_tensor* bias) {
    return std::vector<opdock_value>{A::value(x), up != nullptr ? A::value(up) : A::none(),
                                     bias != nullptr ? A::value(bias) : A::none()};
  };
  const auto only = [](const opdock_tensor* first) {
    return std::vector<opdock_value>{A::value(first), A::none(), A::none()};
  };
  const Case cases[] = {
      {"no dimension", only(a.tensor({})), OPDOCK_INVALID_ARGUMENT,
       "norm: argument 'x': found 0 dimensions, shape [], wanted 1 or more; reshape it"},
      {"columns", only(a.tensor({2, 3}, kF32, {1, 2})), OPDOCK_UNSUPPORTED,
       "norm: argument 'x': found strides [1, 2] for shape [2, 3], wanted stride 1 in the last "
       "dimension; make it contiguous first"},
      {"an odd address", only(odd), OPDOCK_UNSUPPORTED,
       "norm: argument 'x': found an address 2 past a multiple of 4, wanted one aligned to 4 "
       "bytes; copy it first"},
      {"another dtype", with(a.tensor({2, 3}, kF64), nullptr), OPDOCK_INVALID_ARGUMENT,
       "norm: argument 'up': found dtype float64, wanted float32, as 'x' has; convert one of the "
       "two"},
      {"another shape", with(a.tensor({2, 4}), nullptr), OPDOCK_INVALID_ARGUMENT,
       "norm: argument 'up': found shape [2, 4], wanted [2, 3], as 'x' has; reshape one of the "
       "two"},
      {"fewer dimensions", with(a.tensor({3}), nullptr), OPDOCK_INVALID_ARGUMENT,
       "norm: argument 'up': found shape [3], wanted [2, 3], as 'x' has; reshape one of the two"},
      {"columns of another", with(a.tensor({2, 3}, kF32, {1, 2}), nullptr), OPDOCK_UNSUPPORTED,
       "norm: argument 'up': found strides [1, 2] for shape [2, 3], wanted stride 1 in the last "
       "dimension; make it contiguous first"},
      {"a bias of another length", with(nullptr, a.tensor({2})), OPDOCK_INVALID_ARGUMENT,
       "norm: argument 'bias': found shape [2], wanted [3]; reshape or slice it"},
      {"a bias of two dimensions", with(nullptr, a.tensor({1, 3})), OPDOCK_INVALID_ARGUMENT,
       "norm: argument 'bias': found shape [1, 3], wanted [3]; reshape or slice it"},
      {"a bias of another dtype", with(nullptr, a.tensor({3}, kF64)), OPDOCK_INVALID_ARGUMENT,
       "norm: argument 'bias': found dtype float64, wanted float32, as 'x' has; convert one of the "
       "two"},
      {"a bias with gaps", with(nullptr, a.tensor({3}, kF32, {2})), OPDOCK_UNSUPPORTED,
       "norm: argument 'bias': found strides [2] for shape [3], wanted contiguous rows; make it "
       "contiguous first"},
      {"a bias at an odd address", with(nullptr, odd_bias), OPDOCK_UNSUPPORTED,
       "norm: argument 'bias': found an address 1 past a multiple of 4, wanted one aligned to 4 "
       "bytes; copy it first"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    TestFunction f(norm_op());
    planned = 0;
    opdock_output room[1];
    opdock_plan plan{};
    plan.struct_size = sizeof plan;
    plan.outputs = room;
    plan.room = 1;
    EXPECT_EQ(f.plan(one.args, &plan), one.status);
    EXPECT_EQ(f.error, one.text);
    std::vector<opdock_tensor*> outputs = {nullptr};
    EXPECT_EQ(f.invoke(one.args, outputs), one.status);
    EXPECT_EQ(f.error, one.text);
    EXPECT_EQ(planned, 0);
  }
}

TEST(TensorRules, PassWhatDoesNotMatter) {
  A a;
  const std::vector<opdock_tensor*> good = {
      a.tensor({2, 3}), a.tensor({2, 3}, kF32, {7, 1}), a.tensor({3}, kF32, {1}),
      // Strides of one element, and of none, do not matter.
      a.tensor({2, 1}, kF32, {5, 4}), a.tensor({0, 3}, kF32, {1, 9}),
      a.tensor({2, 0}, kF32, {3, 2})};
  for (opdock_tensor* x : good) {
    TestFunction f(norm_op());
    std::vector<opdock_tensor*> outputs = {nullptr};
    planned = ran = 0;
    const int64_t columns = x->shape[x->ndim - 1];
    const opdock_tensor* const bias = a.tensor({columns}, kF32, {columns == 1 ? 8 : 1});
    const std::vector<int64_t> shape(x->shape, x->shape + x->ndim);
    EXPECT_EQ(f.invoke({A::value(x), A::value(a.tensor(shape)), A::value(bias)}, outputs),
              OPDOCK_OK)
        << f.error;
    EXPECT_EQ(planned + ran, 2);
  }
  // An address that is not aligned may be that of a shape without data.
  opdock_tensor* const shape = a.tensor({2, 3});
  shape->data = reinterpret_cast<void*>(1);
  TestFunction f(norm_op());
  opdock_output room[1];
  opdock_plan plan{};
  plan.struct_size = sizeof plan;
  plan.outputs = room;
  plan.room = 1;
  EXPECT_EQ(f.plan({A::value(shape, OPDOCK_VALUE_NO_DATA), A::none(), A::none()}, &plan), OPDOCK_OK)
      << f.error;
}

TEST(TensorRules, BindResultsThatAreLikeAnArgument) {
  A a;
  opdock_tensor* const x = a.tensor({2, 3});
  TestFunction f(norm_op());
  ran = 0;
  EXPECT_EQ(f.invoke({A::value(x), A::none(), A::none()}, {a.tensor({2, 3}, kF32, {1, 2})}),
            OPDOCK_UNSUPPORTED);
  EXPECT_STREQ(f.error,
               "norm: argument 'output 0': found strides [1, 2] for shape [2, 3], wanted stride 1 "
               "in the last dimension; make it contiguous first");
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(f.invoke({A::value(x), A::none(), A::none()}, {a.tensor({2, 3}, kF32, {9, 1})}),
            OPDOCK_OK)
      << f.error;
}

TEST(TensorRules, NameTheArgumentsThatAResultMayBe) {
  A a;
  opdock_tensor* const x = a.tensor({2, 3});
  opdock_tensor* const up = a.tensor({2, 3});
  TestFunction f(norm_op());
  EXPECT_EQ(f.invoke({A::value(x), A::value(up), A::none()}, {x}), OPDOCK_OK) << f.error;
  EXPECT_EQ(f.invoke({A::value(x), A::value(up), A::none()}, {up}), OPDOCK_INVALID_ARGUMENT);
  EXPECT_STREQ(f.error,
               "norm: output 0: found memory shared with argument 'up', wanted memory of its own, "
               "as the op writes it; pass another output");
  // A tensor that is two arguments may not be the result: one of the two must not be it.
  EXPECT_EQ(f.invoke({A::value(x), A::value(x), A::none()}, {x}), OPDOCK_INVALID_ARGUMENT);
}

const opdock_op* flat_op() {
  static const char* const rules[] = {"contiguous x"};
  static const char* const shapes[] = {"like x"};
  static const opdock_op op = [] {
    opdock_op made = make_op("flat(Tensor x) -> Tensor", plan_counted, run_counted);
    made.num_shape_rules = made.num_tensor_rules = 1;
    made.shape_rules = shapes;
    made.tensor_rules = rules;
    return made;
  }();
  return &op;
}

TEST(TensorRules, OfContiguousTensors) {
  A a;
  TestFunction f(flat_op());
  opdock_tensor* const good = a.tensor({2, 3});
  opdock_tensor* const padded = a.tensor({2, 3}, kF32, {4, 1});
  opdock_tensor* const odd = a.tensor({});
  odd->byte_offset = 3;
  EXPECT_EQ(f.invoke({A::value(padded)}, {nullptr}), OPDOCK_UNSUPPORTED);
  EXPECT_STREQ(f.error,
               "flat: argument 'x': found strides [4, 1] for shape [2, 3], wanted contiguous rows; "
               "make it contiguous first");
  EXPECT_EQ(f.invoke({A::value(odd)}, {nullptr}), OPDOCK_UNSUPPORTED);
  EXPECT_STREQ(f.error,
               "flat: argument 'x': found an address 3 past a multiple of 4, wanted one aligned to "
               "4 bytes; copy it first");
  EXPECT_EQ(f.invoke({A::value(good)}, {padded}), OPDOCK_UNSUPPORTED);
  EXPECT_NE(std::string(f.error).find("'output 0': found strides [4, 1]"), std::string::npos);
  for (opdock_tensor* x : {good, a.tensor({}), a.tensor({1, 3}, kF32, {9, 1}),
                           a.tensor({0, 3}, kF32, {1, 9}), a.tensor({2, 1, 3}, kF32, {3, 7, 1})})
    EXPECT_EQ(f.invoke({A::value(x)}, {nullptr}), OPDOCK_OK) << f.error;
}

TEST(TensorRules, HaveAGrammar) {
  const Schema schema =
      *parse_schema("f(Tensor x, Tensor? y, Tensor[] zs, int n) -> Tensor", nullptr);
  const auto problem = [&](std::vector<std::string> texts) {
    Reason error{};
    size_t at = 99;
    if (parse_tensor_rules(texts, schema, &error, &at)) return std::string();
    return std::to_string(at) + ": " + error.found + ", wanted " + error.wanted;
  };
  EXPECT_EQ(problem({"rows x", "rows y", "like y x", "broadcast y", "in-place y"}), "");
  EXPECT_EQ(problem({"row x"}),
            "0: 'row' at position 0 of \"row x\", wanted \"rows\", \"contiguous\", "
            "\"like\", \"broadcast\" or \"in-place\"");
  EXPECT_EQ(problem({"rows x", "like x y"}),
            "1: 'y' at position 7 of \"like x y\", wanted a parameter of type Tensor of " +
                schema.text());
  for (const char* wrong : {"rows zs", "rows n", "rows q", "rows", "like x", "like n x"})
    EXPECT_NE(problem({wrong}).find("wanted a parameter of type Tensor"), std::string::npos)
        << problem({wrong});
  EXPECT_EQ(problem({"rows x y"}),
            "0: 'y' at position 7 of \"rows x y\", wanted the end of the rule");
  EXPECT_NE(problem({"rows y", "broadcast y"}).find("wanted a rule \"rows …\""), std::string::npos);
}

}  // namespace
}  // namespace opdock::tensor_rules
