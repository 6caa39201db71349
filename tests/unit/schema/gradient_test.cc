// Tests declared gradients: which are understood and which are refused.
// SPDX-License-Identifier: Apache-2.0
#include "schema/gradient.h"

#include <gtest/gtest.h>

#include "call/describe.h"
#include "opdock/opdock.h"

namespace opdock {
namespace {

constexpr const char* kSchemas[] = {
    "f(Tensor x, Tensor? w, Tensor[] xs, int n, float p=0.5) -> (Tensor, Tensor, int)",
    "back(Tensor grad, Tensor x, float p=0.25, *, bool exact=True) -> Tensor",
    "two(Tensor grad, Tensor mask) -> (Tensor, Tensor)",
    "lists(Tensor[] xs, Tensor? grad) -> Tensor[]",
    "number(Tensor grad) -> int",
};

std::vector<Schema> schemas() {
  std::vector<Schema> all;
  for (const char* text : kSchemas) all.push_back(*parse_schema(text, nullptr));
  return all;
}

// Returns a description of the parsed gradients, or the error. Unless `texts` is empty, it must
// name every tensor parameter, with "none: REASON" for one without a gradient.
std::string parsed(std::vector<std::string> texts, size_t* at = nullptr) {
  const std::vector<Schema> ops = schemas();
  Reason error{};
  const auto found = parse_gradients(texts, ops[0], ops, &error, at);
  if (!found) return error.found + " | " + error.wanted;
  std::string text;
  for (const Gradient& gradient : *found) {
    for (size_t i = 0; i < gradient.params.size(); ++i)
      text += ops[0].params[gradient.params[i]].name + std::to_string(gradient.results[i]) + " ";
    text += "= " + (gradient.op.empty() ? "none (" + gradient.why + ")" : gradient.op);
    for (const GradientArg& arg : gradient.args) {
      text += " " + std::to_string(arg.kind) + ":" + std::to_string(arg.index);
      if (arg.kind == OPDOCK_GRADIENT_CONSTANT) {
        text += "=" + std::to_string(arg.constant.tag == OPDOCK_TAG_FLOAT
                                         ? arg.constant.real
                                         : static_cast<double>(arg.constant.integer));
      }
    }
    text += "; ";
  }
  return text;
}

TEST(Gradients, AreCallsOfAnOpOfThePlugin) {
  EXPECT_EQ(
      parsed({"x = back(grads[0], x, p)", "w = none: it is a mask", "xs = lists(xs, grads[1])"}),
      "x0 = back 2:0 0:0 0:4 3:0=1.000000; w0 = none (it is a mask); xs0 = lists 0:2 2:1; ");
  EXPECT_EQ(parsed({"x, w = two(mask=results[1], grad=grads[0])", "xs = none: no use"}),
            "x0 w1 = two 2:0 1:1; xs0 = none (no use); ");
  EXPECT_EQ(parsed({"x & w = back(grads[0], x)", "xs = none: no use"}),
            "x0 w0 = back 2:0 0:0 3:0=0.250000 3:0=1.000000; xs0 = none (no use); ");
  EXPECT_EQ(
      parsed({"x = back(grads[0], results[0], 2.5, exact=False)", "w = none: a", "xs = none: b"}),
      "x0 = back 2:0 1:0 3:0=2.500000 3:0=0.000000; w0 = none (a); xs0 = none (b); ");
  EXPECT_EQ(parsed({}), "");
}

TEST(Gradients, AreRefusedWithPositionAndWhatIsWanted) {
  const struct {
    const char* text;
    const char* found;
    const char* wanted;
  } rows[] = {
      {"y = back(grads[0], x)", "'y' at position 0", "a tensor parameter of f("},
      {"n = back(grads[0], x)", "'n' at position 0", "a tensor parameter"},
      {"x back(grads[0], x)", "'back' at position 2", "'='"},
      {"x = lost(grads[0])", "'lost' at position 4", "an op of the same plugin"},
      {"x = none:", "the end at position 9", "the reason"},
      {"x = none", "the end at position 8", "':'"},
      {"x = back(grads[3], x)", "'3' at position 15", "one of the 3 results"},
      {"x = back(grads[2], x)", "'grads' at position 9", "a result that is a tensor"},
      {"x = back(results[2], x)", "'results' at position 9", "a value of type Tensor"},
      {"x = back(grads[0], w)", "'w' at position 19", "a value of type Tensor for parameter 'x'"},
      {"x = back(grads[0], n)", "'n' at position 19", "a value of type Tensor"},
      {"x = back(grads[0])", "'back' at position 4", "an argument for parameter 'x'"},
      {"x = back(grads[0], x, p, True)", "'True' at position 25", "an argument by name"},
      {"x = back(grads[0], x, x=x)", "'x' at position 22", "each parameter of back once"},
      {"x = back(grads[0], x, lost=1)", "'lost' at position 22", "a parameter of back("},
      {"x = back(grads[0], x, p=None)", "'None' at position 24", "a default of type float"},
      {"x = two(grads[0], x)", "'two' at position 4", "results are the 1 gradients"},
      {"x & w = two(grads[0], x)", "'two' at position 8", "results are the 1 gradients"},
      {"x & = back(grads[0], x)", "'=' at position 4", "a tensor parameter"},
      {"x = number(grads[0])", "'number' at position 4", "results are the 1 gradients"},
      {"x = lists(xs, grads[0])", "'lists' at position 4", "results are the 1 gradients"},
      {"x = back(grads[0], x) more", "'more' at position 22", "the end of the gradient"},
  };
  for (const auto& row : rows) {
    const std::string text = parsed({row.text, "w = none: a", "xs = none: b"});
    EXPECT_NE(text.find(row.found), text.npos) << row.text << " gives " << text;
    EXPECT_NE(text.find(row.wanted), text.npos) << row.text << " gives " << text;
  }
}

TEST(Gradients, NameEachTensorParameterOnce) {
  size_t at = 9;
  EXPECT_NE(parsed({"x = none: a", "w, x = two(grads[0], x)", "xs = none: b"}, &at)
                .find("a second gradient of 'x'"),
            std::string::npos);
  EXPECT_EQ(at, 1u);
  EXPECT_NE(parsed({"x = none: a", "w = none: b"}).find("no gradient of 'xs'"), std::string::npos);
}

TEST(Gradients, AreDescribed) {
  const std::vector<Schema> ops = schemas();
  const std::vector<std::string> texts = {"x, w = two(grads[0], results[1])", "xs = none: no use"};
  Reason error{};
  Declared declared;
  declared.gradients = *parse_gradients(texts, ops[0], ops, &error);
  const Description description(ops[0], declared);
  const opdock_function_info& info = description.info();
  ASSERT_EQ(info.num_gradients, 2u);
  EXPECT_STREQ(info.gradients[0].op, "two");
  EXPECT_EQ(info.gradients[0].why, nullptr);
  ASSERT_EQ(info.gradients[0].num_params, 2u);
  EXPECT_EQ(info.gradients[0].params[1], 1u);
  EXPECT_EQ(info.gradients[0].results[1], 1u);
  ASSERT_EQ(info.gradients[0].num_args, 2u);
  EXPECT_EQ(info.gradients[0].args[1].kind, uint32_t{OPDOCK_GRADIENT_RESULT});
  EXPECT_EQ(info.gradients[0].args[1].index, 1u);
  EXPECT_EQ(info.gradients[1].op, nullptr);
  EXPECT_STREQ(info.gradients[1].why, "no use");
}

}  // namespace
}  // namespace opdock
