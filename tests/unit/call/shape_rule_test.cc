// SPDX-License-Identifier: Apache-2.0
#include "schema/shape_rule.h"

#include <gtest/gtest.h>

#include "schema/dtype.h"

namespace opdock {
namespace {

constexpr char kSchema[] =
    "f(Tensor x, Tensor y, Tensor? z, int n, int? m, float a, ScalarType d, Tensor[] ts) -> Tensor";

// x: float32 [2, 3, 5], y: float16 [7, 4], z: None, n: 6, m: None, a: 1.0, d: int64, ts: [x].
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
    list_ = {args_, 1};
  }

  std::string refusal(const char* rule) {
    Reason error;
    if (parse_shape_rule(rule, schema_, &error)) return "accepted";
    return error.found + " | " + error.wanted;
  }
  // "float32 [2, 3] strides [3, 1]", or the problem.
  std::string result(const char* text) {
    Reason error;
    std::optional<ShapeRule> rule = parse_shape_rule(text, schema_, &error);
    if (!rule) return to_text(error);
    opdock_output out;
    std::string problem;
    if (!evaluate(*rule, schema_, args_, &out, &problem)) return problem;
    std::string line = to_text(out.dtype) + " [";
    for (int32_t i = 0; i < out.ndim; ++i) {
      line += (i ? ", " : "") + std::to_string(out.shape[i]);
    }
    line += "] strides [";
    for (int32_t i = 0; i < out.ndim; ++i) {
      line += (i ? ", " : "") + std::to_string(out.strides[i]);
    }
    return line + "]";
  }

  Schema schema_;
  int64_t x_shape_[3] = {2, 3, 5}, x_strides_[3] = {1, 2, 6};
  int64_t y_shape_[2] = {7, 4}, y_strides_[2] = {4, 1};
  opdock_tensor x_{}, y_{};
  opdock_list list_{};
  opdock_value args_[8] = {};
};

TEST_F(ShapeRules, GiveDtypeShapeAndContiguousStrides) {
  const struct {
    const char* rule;
    const char* result;
  } rows[] = {
      {"like x", "float32 [2, 3, 5] strides [15, 5, 1]"},
      {"like y", "float16 [7, 4] strides [4, 1]"},
      {"like x, dtype float64", "float64 [2, 3, 5] strides [15, 5, 1]"},
      {"like x, dtype like y", "float16 [2, 3, 5] strides [15, 5, 1]"},
      {"like x, dtype d", "int64 [2, 3, 5] strides [15, 5, 1]"},
      {"like x, dtype float4_e2m1fn_x2", "float4_e2m1fn_x2 [2, 3, 5] strides [15, 5, 1]"},
      {"[]", "float32 [] strides []"},
      {"[], dtype bool", "bool [] strides []"},
      {"[1]", "float32 [1] strides [1]"},
      {"[0, 3]", "float32 [0, 3] strides [3, 1]"},
      {"[x.shape[0], y.shape[-1] * 2, n]", "float32 [2, 8, 6] strides [48, 6, 1]"},
      {"[n + 1, n - 1]", "float32 [7, 5] strides [5, 1]"},
      {"[n - 1 - 2]", "float32 [3] strides [1]"},
      {"[2 + n * 3]", "float32 [20] strides [1]"},
      {"[(2 + n) * 3]", "float32 [24] strides [1]"},
      {"[n // 4]", "float32 [1] strides [1]"},
      {"[-(-n // 4)]", "float32 [2] strides [1]"},
      {"[-7 // 2 + 5]", "float32 [1] strides [1]"},
      {"[7 // -2 + 5]", "float32 [1] strides [1]"},
      {"[100 // 10 // 2]", "float32 [5] strides [1]"},
      {"[x.ndim, 2]", "float32 [3, 2] strides [2, 1]"},
      {"[x.shape]", "float32 [2, 3, 5] strides [15, 5, 1]"},
      {"[x.shape[:-1]]", "float32 [2, 3] strides [3, 1]"},
      {"[x.shape[1:]]", "float32 [3, 5] strides [5, 1]"},
      {"[x.shape[-1:]]", "float32 [5] strides [1]"},
      {"[x.shape[1:2], n]", "float32 [3, 6] strides [6, 1]"},
      {"[x.shape[:]]", "float32 [2, 3, 5] strides [15, 5, 1]"},
      {"[x.shape[9:]]", "float32 [] strides []"},
      {"[x.shape[:-1], y.shape[1]]", "float32 [2, 3, 4] strides [12, 4, 1]"},
      {"[ x . shape [ 0 ] + 1 ]", "float32 [3] strides [1]"},
      {"[x.shape[0]*x.shape[1], x.shape[2]]", "float32 [6, 5] strides [5, 1]"},
  };
  for (const auto& row : rows) EXPECT_EQ(result(row.rule), row.result) << row.rule;
}

TEST_F(ShapeRules, AreRefusedWithPositionAndWhatIsAllowed) {
  const struct {
    const char* rule;
    const char* found;
    const char* wanted;
  } rows[] = {
      {"", "the end at position 0", "\"like\""},
      {"x", "'x' at position 0", "\"like\""},
      {"like", "the end at position 4", "a parameter"},
      {"like w", "'w' at position 5", "a parameter"},
      {"like n", "'n' at position 5", "a tensor parameter"},
      {"like ts", "'ts' at position 5", "a tensor parameter"},
      {"like x y", "'y' at position 7", "dtype"},
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
      {"[ts]", "'ts' at position 1", "an int or tensor"},
      {"[x]", "']' at position 2", "'.'"},
      {"[x.size]", "'size' at position 3", "shape or ndim"},
      {"[x.shape[n]]", "'n' at position 9", "an integer"},
      {"[n.shape]", "'n' at position 1", "a tensor parameter"},
      {"[x.shape[0:1] * 2]", "'*' at position 14", "an operator"},
      {"[n / 2]", "'/' at position 3", "an operator"},
      {"[(n]", "']' at position 3", "')'"},
      {"[1.5]", "'1' at position 1", "an integer"},
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
}

}  // namespace
}  // namespace opdock
