// Tests the device source of formulas: constants, names, and that it is always the same.
// SPDX-License-Identifier: Apache-2.0
#include "formula/device_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>

#include "formula/device_expressions.h"
#include "formula/formula.h"
#include "formula/rewrite.h"

namespace opdock::formula {
namespace {

Value real(double value) {
  return {value, 0};
}
Value integer(int64_t value) {
  return {0, value};
}

TEST(DeviceSource, FloatConstantsAreExact) {
  EXPECT_EQ(constant_text(Type::kFloat32, real(0.5)), "0.5f");
  EXPECT_EQ(constant_text(Type::kFloat32, real(-0.0)), "-0.0f");
  EXPECT_EQ(constant_text(Type::kFloat32, real(16777216)), "16777216.0f");
  EXPECT_EQ(constant_text(Type::kFloat16, real(3)), "3.0f");
  EXPECT_EQ(constant_text(Type::kFloat64, real(0.1)), "0.10000000000000001");
  EXPECT_EQ(constant_text(Type::kFloat64, real(1e22)), "1e+22");
  for (const Type type : {Type::kFloat32, Type::kFloat64}) {
    const bool is_double = type == Type::kFloat64;
    const double least = is_double ? 5e-324 : std::numeric_limits<float>::denorm_min();
    const double most = is_double ? std::numeric_limits<double>::max()
                                  : static_cast<double>(std::numeric_limits<float>::max());
    // The last two need all 9 and all 17 digits.
    for (const double exact : {least, -least, most, -most, 0.1, 1e-45, 1023.99994, 0.1 + 0.2}) {
      const double value = is_double ? exact : static_cast<double>(static_cast<float>(exact));
      const std::string text = constant_text(type, real(value));
      EXPECT_EQ(text.back() == 'f', !is_double) << text;
      const double read = is_double ? std::strtod(text.c_str(), nullptr)
                                    : static_cast<double>(std::strtof(text.c_str(), nullptr));
      EXPECT_EQ(read, value) << text;
      EXPECT_EQ(std::signbit(read), std::signbit(value)) << text;
    }
  }
}

TEST(DeviceSource, ConstantsWithoutALiteral) {
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(constant_text(Type::kFloat32, real(infinite)), "infinite<float>()");
  EXPECT_EQ(constant_text(Type::kFloat64, real(-infinite)), "-infinite<double>()");
  EXPECT_EQ(constant_text(Type::kBfloat16, real(std::nan(""))), "not_a_number<float>()");
}

TEST(DeviceSource, IntegerConstants) {
  EXPECT_EQ(constant_text(Type::kBool, integer(1)), "true");
  EXPECT_EQ(constant_text(Type::kUint8, integer(255)), "255");
  EXPECT_EQ(constant_text(Type::kInt8, integer(-128)), "-128");
  EXPECT_EQ(constant_text(Type::kInt32, integer(INT32_MAX)), "2147483647");
  // Minus 2147483648 would be an int64_t, for which a template has no overload next to an int32_t.
  EXPECT_EQ(constant_text(Type::kInt32, integer(INT32_MIN)), "(-2147483647 - 1)");
  EXPECT_EQ(constant_text(Type::kInt64, integer(-3)), "int64_t(-3LL)");
  EXPECT_EQ(constant_text(Type::kInt64, integer(INT64_MAX)), "int64_t(9223372036854775807LL)");
  EXPECT_EQ(constant_text(Type::kInt64, integer(INT64_MIN)), "int64_t(-9223372036854775807LL - 1)");
}

TEST(DeviceSource, NamesAreIdentifiers) {
  Graph graph;
  const auto named = [&](const std::string& name) {
    return variable_name(graph, graph.input(name, Type::kFloat32, 2));
  };
  EXPECT_EQ(named("gate"), "gate_0");
  EXPECT_EQ(named("int"), "int_1");
  EXPECT_EQ(named("__asm__"), "asm_2");
  EXPECT_EQ(named("x; } */ \"\n#include </etc/passwd>\\"), "xincludeetcpasswd_3");
  EXPECT_EQ(named("9lives"), "lives_4");
  EXPECT_EQ(named("µ"), "t_5");
  EXPECT_EQ(named(""), "t_6");
  EXPECT_EQ(named(std::string(500, 'a')), std::string(40, 'a') + "_7");
  EXPECT_EQ(named("a_"), "a_8");
  EXPECT_EQ(named("a__b"), "a_b_9");
}

TEST(DeviceSource, NamesCannotAddText) {
  Graph graph;
  const std::string hostile = "x */ } __trap(); /* \n#error no";
  const Id x = graph.input(hostile, Type::kFloat16, 2), s = graph.scalar(hostile, Type::kFloat64);
  const Id sum = graph.apply(Op::kAdd, x, s);
  graph.name(sum, hostile);
  graph.add_result(sum);
  graph.add_result(graph.apply(Op::kSum, sum));
  for (const int held : {0, 2}) {
    DeviceShape shape;
    shape.held = held;
    const std::string source = device_source(graph, shape);
    for (const std::string text : {"#error", "trap()", "*/ }"})
      EXPECT_EQ(source.find(text), source.npos) << text << "\n" << source;
  }
}

std::string sources() {
  std::string all;
  const Formula formula(
      "y = x * weight + b\nm = mean(y)\nv = mean((y - m) * (y - m))\n"
      "return (y - m) * rsqrt(v + 1e-5), argmax(y), logsumexp(y), m");
  std::vector<Argument> arguments(3);
  arguments[1].rank = 1;
  arguments[2].type = Type::kBfloat16;
  for (const bool exact : {false, true}) {
    const Graph graph = with_plain_reductions(formula.graph(arguments, exact));
    for (const int held : {0, 1, 4})
      for (const bool is_block : {false, true})
        all += device_source(graph,
                             {.dims = held, .is_wide = exact, .is_block = is_block, .held = held});
  }
  return all;
}

// The source is the key of the compile cache. Addresses differ between processes.
TEST(DeviceSourceDeathTest, IsTheSameInAnotherProcess) {
  const std::string all = sources();
  const std::string hash = std::to_string(std::hash<std::string>()(all));
  EXPECT_EQ(all, sources());
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // executes this program again
  EXPECT_EXIT(
      {
        std::fprintf(stderr, "source %zu", std::hash<std::string>()(sources()));
        std::exit(0);
      },
      testing::ExitedWithCode(0), "source " + hash);
}

}  // namespace
}  // namespace opdock::formula
