// Tests what opdock_describe reports about an op: enough to write its schema again and to evaluate
// its shape rules on symbolic shapes.
// SPDX-License-Identifier: Apache-2.0
#include "call/describe.h"

#include <gtest/gtest.h>

#include <limits>

#include "support.h"

namespace opdock {
namespace {

using namespace testing_support;

// Walks an expression as a framework's bridge would, with names instead of numbers.
std::string symbol(const opdock_shape_rule& rule, const opdock_param* params, int32_t number) {
  const opdock_expr& e = rule.exprs[number];
  const auto operand = [&](int32_t n) { return symbol(rule, params, n); };
  std::string name = e.param < 0 ? "" : params[e.param].name;
  if (e.element >= 0) name += "[" + operand(e.element) + "]";
  switch (e.kind) {
    case OPDOCK_EXPR_CONSTANT:
      return std::to_string(e.integer);
    case OPDOCK_EXPR_INT:
    case OPDOCK_EXPR_TRUE:
      return name;
    case OPDOCK_EXPR_GIVEN:
      return "given(" + name + ")";
    case OPDOCK_EXPR_NOT:
      return "not(" + operand(e.a) + ")";
    case OPDOCK_EXPR_SIZE:
      return name + ".size(" + operand(e.a) + ")";
    case OPDOCK_EXPR_NDIM:
      return name + ".ndim";
    case OPDOCK_EXPR_LENGTH:
      return "len(" + name + ")";
    case OPDOCK_EXPR_INDEX:
      return "i";
    case OPDOCK_EXPR_CHOOSE:
      return "(" + operand(e.c) + " ? " + operand(e.a) + " : " + operand(e.b) + ")";
    case OPDOCK_EXPR_NEGATE:
      return "-" + operand(e.a);
    default: {
      const char* const names[] = {"+", "-", "*", "/", "", "max", "min"};
      return "(" + operand(e.a) + " " + names[e.kind - OPDOCK_EXPR_ADD] + " " + operand(e.b) + ")";
    }
  }
}

std::string shape_of(const opdock_shape_rule& rule, const opdock_shape& shape,
                     const opdock_param* params) {
  std::string text = "[";
  for (uint32_t i = 0; i < shape.num_dims; ++i) {
    const opdock_dim& dim = shape.dims[i];
    if (i > 0) text += ", ";
    if (dim.expr >= 0) {
      text += symbol(rule, params, dim.expr);
      continue;
    }
    text += std::string("*") + params[dim.param].name;
    if (dim.element >= 0) text += "[" + symbol(rule, params, dim.element) + "]";
    text += "(" + std::to_string(dim.from) + ":" +
            (dim.to == std::numeric_limits<int64_t>::max() ? "" : std::to_string(dim.to)) + ")";
  }
  text += "] ";
  if (shape.dtype.bits != 0) return text + std::to_string(shape.dtype.bits) + " bits";
  return text + (shape.dtype_param < 0 ? "first" : params[shape.dtype_param].name);
}

std::string rule_of(const opdock_shape_rule& rule, const opdock_param* params) {
  std::string text = shape_of(rule, rule.then, params);
  if (rule.condition >= 0) {
    text += " if " + symbol(rule, params, rule.condition) + " else " +
            (rule.otherwise_none != 0 ? "none" : shape_of(rule, rule.otherwise, params));
  }
  return rule.count < 0 ? text : text + " times " + symbol(rule, params, rule.count);
}

std::string described(const char* schema_text, std::vector<std::string> rules) {
  const Schema schema = *parse_schema(schema_text, nullptr);
  Reason error{};
  Declared declared;
  const auto parsed = parse_shape_rules(rules, schema, &error);
  if (!parsed) return to_text(error);
  declared.rules = *parsed;
  const Description description(schema, declared);
  const opdock_function_info& info = description.info();
  std::string text;
  for (uint32_t i = 0; i < info.num_results; ++i) {
    if (info.results[i].shape_rule == nullptr) continue;
    text += (text.empty() ? "" : "; ") + rule_of(*info.results[i].shape_rule, info.params);
  }
  return text;
}

TEST(Describe, ShapeRulesAreTreesToWalk) {
  EXPECT_EQ(described("f(Tensor x) -> Tensor", {"like x"}), "[*x(0:)] x");
  EXPECT_EQ(described("f(Tensor x, int n) -> Tensor", {"[x.shape[:-1], n * 2 + 1], dtype float32"}),
            "[*x(0:-1), ((n * 2) + 1)] 32 bits");
  EXPECT_EQ(described("f(Tensor[] xs) -> Tensor", {"[len(xs), xs[0].shape[1:]]"}),
            "[len(xs), *xs[0](1:)] first");
  EXPECT_EQ(described("f(Tensor x, int[] s) -> Tensor[]",
                      {"[s[i], x.shape[1:]], dtype like x for i in range(len(s) - 1)"}),
            "[s[i], *x(1:)] x times (len(s) - 1)");
  EXPECT_EQ(
      described("f(Tensor x, Tensor? y, bool b) -> (Tensor?, Tensor)",
                {"like x if not b", "like y if y else [x.shape[0] if b else 1]"}),
      "[*x(0:)] x if not(b) else none; [*y(0:)] y if given(y) else [(b ? x.size(0) : 1)] first");
  EXPECT_EQ(described("f(Tensor x, Tensor y) -> Tensor",
                      {"[max(x.shape[0], y.shape[0], 3), min(x.ndim, -1)]"}),
            "[((x.size(0) max y.size(0)) max 3), (x.ndim min -1)] first");
}

TEST(Describe, ParametersResultsAndDevices) {
  const Schema schema = *parse_schema(
      "f(Tensor x, Object(h) o, Tensor(a!) y, *, float s=0.5) -> (Tensor(a!), Object(h), int, "
      "Tensor)",
      nullptr);
  Declared declared;
  declared.flags = OPDOCK_OP_RANDOM;
  declared.device_arg = 2;
  declared.arg_devices = {OPDOCK_ON_CPU, 0, 0, 0};
  declared.devices = {{OPDOCK_CPU, {kF32, kF64}}, {OPDOCK_CUDA, {}}};
  const Description description(schema, declared);
  const opdock_function_info& info = description.info();
  EXPECT_STREQ(info.name, "f");
  EXPECT_EQ(info.schema, schema.text());
  EXPECT_EQ(info.flags, OPDOCK_OP_RANDOM);
  EXPECT_EQ(info.device_arg, 2u);
  ASSERT_EQ(info.num_params, 4u);
  EXPECT_EQ(info.params[0].device, uint32_t{OPDOCK_ON_CPU});
  EXPECT_STREQ(info.params[1].object_type, "h");
  EXPECT_EQ(info.params[0].object_type, nullptr);
  EXPECT_EQ(info.params[3].fallback.as.f64, 0.5);
  ASSERT_EQ(info.num_results, 4u);
  EXPECT_EQ(info.results[0].param, 2);
  EXPECT_EQ(info.results[1].tag, uint32_t{OPDOCK_TAG_OBJECT});
  EXPECT_STREQ(info.results[1].object_type, "h");
  EXPECT_EQ(info.results[2].tag, uint32_t{OPDOCK_TAG_INT});
  EXPECT_EQ(info.results[3].param, -1);
  ASSERT_EQ(info.num_devices, 2u);
  EXPECT_EQ(info.devices[0].num_dtypes, 2u);
  EXPECT_EQ(info.devices[0].dtypes[1].bits, 64);
  EXPECT_EQ(info.devices[1].type, OPDOCK_CUDA);
}

}  // namespace
}  // namespace opdock
