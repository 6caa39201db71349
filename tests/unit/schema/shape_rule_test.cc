// SPDX-License-Identifier: Apache-2.0
#include "schema/shape_rule.h"

#include <gtest/gtest.h>

#include "schema/dtype.h"

namespace opdock {
namespace {

constexpr char kSchema[] =
    "f(Tensor x, Tensor y, Tensor? z, int n, int? m, float a, ScalarType d, Tensor[] ts, bool b, "
    "int[] s, bool[]? g) -> (Tensor, Tensor?, Tensor[])";

// x: float32 [2, 3, 5], y: float16 [7, 4], z: None, n: 6, m: None, a: 1.0, d: int64, ts: [x, y],
// b: True, s: [4, 0, 9], g: None.
class ShapeRules : public testing::Test {
 protected:
  ShapeRules() {
    Reason error;
    schema_ = *parse_schema(kSchema, &error);
    x_ = {nullptr, {OPDOCK_CPU, 0}, 3, {OPDOCK_DTYPE_FLOAT, 32, 1}, x_shape_, x_strides_, 0};
    y_ = {nullptr, {OPDOCK_CPU, 0}, 2, {OPDOCK_DTYPE_FLOAT, 16, 1}, y_shape_, y_strides_, 0};
    args_[0].tag = OPDOCK_TAG_TENSOR;
    args_[0].as.tensor = &x_;
    args_[1].tag = OPDOCK_TAG_TENSOR;
    args_[1].as.tensor = &y_;
    args_[3].tag = OPDOCK_TAG_INT;
    args_[3].as.i64 = 6;
    args_[5].tag = OPDOCK_TAG_FLOAT;
    args_[5].as.f64 = 1;
    args_[6].tag = OPDOCK_TAG_DTYPE;
    args_[6].as.dtype = {OPDOCK_DTYPE_INT, 64, 1};
    args_[7].tag = OPDOCK_TAG_LIST;
    args_[7].as.list = &list_;
    list_ = {args_, 2};
    args_[8].tag = OPDOCK_TAG_BOOL;
    args_[8].as.i64 = 1;
    args_[9].tag = OPDOCK_TAG_LIST;
    args_[9].as.list = &sizes_;
    for (int i = 0; i < 3; ++i) {
      numbers_[i].tag = OPDOCK_TAG_INT;
      numbers_[i].as.i64 = i == 0 ? 4 : i == 1 ? 0 : 9;
    }
    sizes_ = {numbers_, 3};
  }

  // result: index of one of the schema's three results.
  std::string refusal(const char* rule, size_t result = 0) {
    Reason error;
    if (parse_shape_rule(rule, schema_, schema_.returns[result], &error)) return "accepted";
    return error.found + " | " + error.wanted;
  }
  // Returns "float32 [2, 3]", or the problem.
  std::string result(const char* text, size_t result = 0) {
    Reason error;
    std::optional<ShapeRule> rule =
        parse_shape_rule(text, schema_, schema_.returns[result], &error);
    if (!rule) return to_text(error);
    uint32_t count = 0;
    std::string problem, all;
    if (!count_tensors(*rule, schema_, args_, &count, &problem)) return problem;
    for (uint32_t i = 0; i < count; ++i) {
      all += (i > 0 ? "; " : "") + one(*rule, i);
    }
    return count == 0 ? "none" : all;
  }
  std::string one(const ShapeRule& rule, uint32_t index) {
    opdock_output out;
    std::string problem;
    if (!evaluate(rule, schema_, args_, index, &out, &problem)) return problem;
    std::string line = to_text(out.dtype) + " [";
    for (int32_t i = 0; i < out.ndim; ++i) {
      line += (i ? ", " : "") + std::to_string(out.shape[i]);
    }
    return line + "]";
  }

  Schema schema_;
  int64_t x_shape_[3] = {2, 3, 5}, x_strides_[3] = {1, 2, 6};
  int64_t y_shape_[2] = {7, 4}, y_strides_[2] = {4, 1};
  opdock_tensor x_{}, y_{};
  opdock_list list_{}, sizes_{};
  opdock_value args_[11] = {}, numbers_[3] = {};
};

TEST_F(ShapeRules, GiveDtypeAndShape) {
  const struct {
    const char* rule;
    const char* result;
  } rows[] = {
      {"like x", "float32 [2, 3, 5]"},
      {"like y", "float16 [7, 4]"},
      {"like x, dtype float64", "float64 [2, 3, 5]"},
      {"like x, dtype like y", "float16 [2, 3, 5]"},
      {"like x, dtype d", "int64 [2, 3, 5]"},
      {"like x, dtype float4_e2m1fn_x2", "float4_e2m1fn_x2 [2, 3, 5]"},
      {"[]", "float32 []"},
      {"[], dtype bool", "bool []"},
      {"[1]", "float32 [1]"},
      {"[0, 3]", "float32 [0, 3]"},
      {"[x.shape[0], y.shape[-1] * 2, n]", "float32 [2, 8, 6]"},
      {"[n + 1, n - 1]", "float32 [7, 5]"},
      {"[n - 1 - 2]", "float32 [3]"},
      {"[2 + n * 3]", "float32 [20]"},
      {"[(2 + n) * 3]", "float32 [24]"},
      {"[n // 4]", "float32 [1]"},
      {"[-(-n // 4)]", "float32 [2]"},
      {"[-7 // 2 + 5]", "float32 [1]"},
      {"[7 // -2 + 5]", "float32 [1]"},
      {"[100 // 10 // 2]", "float32 [5]"},
      {"[x.ndim, 2]", "float32 [3, 2]"},
      {"[x.shape]", "float32 [2, 3, 5]"},
      {"[x.shape[:-1]]", "float32 [2, 3]"},
      {"[x.shape[1:]]", "float32 [3, 5]"},
      {"[x.shape[-1:]]", "float32 [5]"},
      {"[x.shape[1:2], n]", "float32 [3, 6]"},
      {"[x.shape[:]]", "float32 [2, 3, 5]"},
      {"[x.shape[9:]]", "float32 []"},
      {"[x.shape[:-1], y.shape[1]]", "float32 [2, 3, 4]"},
      {"[ x . shape [ 0 ] + 1 ]", "float32 [3]"},
      {"like ts[1]", "float16 [7, 4]"},
      {"[ts[0].shape[1:], ts[n - 5].ndim]", "float32 [3, 5, 2]"},
      {"[n], dtype like ts[1]", "float16 [6]"},
      {"[len(ts), len(s), s[2] + 1]", "float32 [2, 3, 10]"},
      {"[max(n, 3), max(1, 2, n, 4), min(x.shape[2], n), min(n, 7) - 1]", "float32 [6, 6, 5, 5]"},
      {"[1 if b else 2, (3 if not b else 4) * 2, 5 if z else 6, 7 if not m else 8]",
       "float32 [1, 8, 6, 7]"},
      {"like x if b else like y", "float32 [2, 3, 5]"},
      {"like x if not b else [n], dtype d", "int64 [6]"},
      {"like z if z else like y, dtype bool", "bool [7, 4]"},
      {"like x if g else like y", "float16 [7, 4]"},
      {"like x if not g else like y", "float32 [2, 3, 5]"},
      {"[x.shape[0]*x.shape[1], x.shape[2]]", "float32 [6, 5]"},
      {"[broadcast(x)]", "float32 [2, 3, 5]"},
      {"[broadcast(y, ts[1], z)], dtype like y", "float16 [7, 4]"},
      {"[broadcast(chunk(y, 4), chunk(y, 2))]", "float32 [7, 2]"},
      {"[broadcast(x, chunk(x, 5))[:-1], 2 * broadcast(chunk(y, 2))[-1], n]",
       "float32 [2, 3, 4, 6]"},
      {"[ broadcast ( x , ts[0] ) [ 1 : ] ]", "float32 [3, 5]"},
      {"[broadcast(x)[0] + broadcast(x)[-1]]", "float32 [7]"},
  };
  for (const auto& row : rows) EXPECT_EQ(result(row.rule), row.result) << row.rule;
}

TEST_F(ShapeRules, GiveAsManyTensorsAsTheResultHas) {
  constexpr size_t kOptional = 1, kList = 2;
  EXPECT_EQ(result("like y if b", kOptional), "float16 [7, 4]");
  EXPECT_EQ(result("like y if b else None", kOptional), "float16 [7, 4]");
  EXPECT_EQ(result("like y if not b", kOptional), "none");
  EXPECT_EQ(result("like z if z", kOptional), "none");
  EXPECT_EQ(result("[s[i], x.shape[1:]] for i in range(len(s))", kList),
            "float32 [4, 3, 5]; float32 [0, 3, 5]; float32 [9, 3, 5]");
  EXPECT_EQ(result("like ts[k] for k in range(len(ts))", kList),
            "float32 [2, 3, 5]; float16 [7, 4]");
  EXPECT_EQ(result("[i * 2], dtype bool for i in range(n - 4)", kList), "bool [0]; bool [2]");
  EXPECT_EQ(result("like x for i in range(0)", kList), "none");
  EXPECT_EQ(result("like x if b else like y for i in range(1)", kList), "float32 [2, 3, 5]");
  EXPECT_EQ(result("like x for i in range(n - 7)", kList),
            "the shape rule gives -1 tensors, wanted 0 to 1048576");
  EXPECT_EQ(
      result("like ts[i] for i in range(3)", kList),
      "float32 [2, 3, 5]; float16 [7, 4]; argument 'ts' has 2 elements, and the shape rule needs "
      "number 2");

  EXPECT_NE(refusal("like x", kOptional).find("\"if\""), std::string::npos);
  EXPECT_NE(refusal("like x if b else like y", kOptional).find("None"), std::string::npos);
  EXPECT_NE(refusal("like x if b").find("\"else\""), std::string::npos);
  EXPECT_NE(refusal("like x if b else None").find("a shape"), std::string::npos);
  EXPECT_NE(refusal("like x", kList).find("for i in range"), std::string::npos);
  EXPECT_NE(refusal("like x for n in range(2)", kList).find("no parameter has"), std::string::npos);
  EXPECT_NE(refusal("like x for i in range(i)", kList).find("a parameter"), std::string::npos);
  EXPECT_NE(refusal("like x for i in range(2)").find("the end of the rule"), std::string::npos);
  EXPECT_NE(refusal("like x if n else like y").find("a bool parameter"), std::string::npos);
  EXPECT_NE(refusal("like x if x else like y").find("a bool parameter"), std::string::npos);
  EXPECT_NE(refusal("like x if s else like y").find("a bool parameter"), std::string::npos);
  EXPECT_NE(refusal("[len(x)]").find("a list"), std::string::npos);
  EXPECT_NE(refusal("[max(n)]").find("','"), std::string::npos);
  EXPECT_NE(refusal("[sum(n)]").find("len, max, min or broadcast"), std::string::npos);
}

TEST_F(ShapeRules, AreRefusedWithPositionAndWhatIsAllowed) {
  const struct {
    const char* rule;
    const char* found;
    const char* wanted;
  } rows[] = {
      {"", "the end at position 0", "\"like\""},
      {"x", "'x' at position 0", "\"like\""},
      {"like", "the end at position 4", "a tensor parameter"},
      {"like w", "'w' at position 5", "a tensor parameter"},
      {"like n", "'n' at position 5", "a tensor parameter"},
      {"like ts", "the end at position 7", "'['"},
      {"like x y", "'y' at position 7", "the end of the rule"},
      {"like x, float32", "'float32' at position 8", "'dtype'"},
      {"like x, dtype real", "'real' at position 14", "a dtype such as float32"},
      {"like x, dtype n", "'n' at position 14", "a dtype such as float32"},
      {"like x, dtype like n", "'n' at position 19", "a tensor parameter"},
      {"like x, dtype float32 x", "'x' at position 22", "the end of the rule"},
      {"[", "the end at position 1", "a number"},
      {"[n", "the end at position 2", "']'"},
      {"[n,]", "']' at position 3", "a number"},
      {"[n +]", "']' at position 4", "a number"},
      {"[n n]", "'n' at position 3", "an operator"},
      {"[a]", "'a' at position 1", "an int or tensor"},
      {"[ts]", "']' at position 3", "'['"},
      {"[x]", "']' at position 2", "'.'"},
      {"[x.size]", "'size' at position 3", "shape or ndim"},
      {"[x.shape[n]]", "'n' at position 9", "an integer"},
      {"[n.shape]", "'.' at position 2", "an operator"},
      {"[x.shape[0:1] * 2]", "'*' at position 14", "an operator"},
      {"[n / 2]", "'/' at position 3", "an operator"},
      {"[(n]", "']' at position 3", "')'"},
      {"[1.5]", "'1' at position 1", "an integer"},
      {"broadcast(x)", "'broadcast' at position 0", "\"like\""},
      {"[broadcast]", "']' at position 10", "'('"},
      {"[broadcast()]", "')' at position 11", "a tensor parameter"},
      {"[broadcast(n)]", "'n' at position 11", "a tensor parameter"},
      {"[broadcast(x, chunk(y))]", "')' at position 21", "','"},
      {"[broadcast(chunk(y, 0))]", "'0' at position 20", "how many parts"},
      {"[broadcast(x) + 1]", "'+' at position 14", "'['"},
      {"[99999999999999999999]", "position 1", "an integer"},
  };
  for (const auto& row : rows) {
    std::string text = refusal(row.rule);
    EXPECT_NE(text.find(row.found), std::string::npos) << row.rule << " gives " << text;
    EXPECT_NE(text.find(row.wanted), std::string::npos) << row.rule << " gives " << text;
  }
}

TEST_F(ShapeRules, SayWhyTheyCannotBeEvaluated) {
  const struct {
    const char* rule;
    const char* problem;
  } rows[] = {
      {"like z", "argument 'z' is None, and the shape rule needs a tensor"},
      {"[z.shape[:-1]]", "argument 'z' is None"},
      {"[z.ndim]", "argument 'z' is None"},
      {"[m]", "argument 'm' is None, and the shape rule needs an int"},
      {"[n], dtype like z", "argument 'z' is None"},
      {"[x.shape[3]]", "argument 'x' has 3 dimensions"},
      {"[x.shape[-4]]", "argument 'x' has 3 dimensions"},
      {"[broadcast(x, y)]", "argument 'x' has the size 3 where others have 7"},
      {"[broadcast(z)]", "all of them are None"},
      {"[broadcast(y)[2]]", "have 2 dimensions, and it asks for the size 2"},
      {"[n // (n - 6)]", "divides by zero"},
      {"[n - 7]", "negative size -1"},
      {"[9223372036854775807 + n]", "overflows"},
      {"[9223372036854775807 * n]", "overflows"},
      {"[-9223372036854775807 - n]", "overflows"},
      {"[4294967296, 4294967296]", "overflows"},
      {"[x.shape, x.shape, x.shape, x.shape, x.shape, x.shape]", "more than 16 dimensions"},
  };
  for (const auto& row : rows) {
    EXPECT_NE(result(row.rule).find(row.problem), std::string::npos)
        << row.rule << " gives " << result(row.rule);
  }
}

TEST_F(ShapeRules, RefuseDeepNesting) {
  std::string rule = "[" + std::string(100, '(') + "1" + std::string(100, ')') + "]";
  EXPECT_NE(refusal(rule.c_str()).find("at most 32"), std::string::npos);
  const auto repeated = [](const char* text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  // The recursion would exhaust the stack if each bracket restarted the count of nesting.
  for (const char* const open : {"s[", "ts[0].shape[0] + s[", "max(s[", "(s[", "-s["}) {
    rule = "[" + repeated(open, 20000) + "0";
    EXPECT_NE(refusal(rule.c_str()).find("at most 32 nested parentheses, brackets or signs"),
              std::string::npos)
        << open;
  }
  rule = "[" + repeated("s[", 20) + "1" + repeated("]", 20) + "]";
  EXPECT_EQ(refusal(rule.c_str()), "accepted");
}

}  // namespace
}  // namespace opdock
