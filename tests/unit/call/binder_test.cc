// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "call/function.h"
#include "support.h"

namespace opdock {
namespace {

using namespace testing_support;
using A = Arguments;

// Returns a value as text for comparisons, such as "1", "2.5f", "True", "None", "'text'", "[1;2;]".
std::string text_of(const opdock_value& v) {
  switch (v.tag) {
    case OPDOCK_TAG_NONE:
      return "None";
    case OPDOCK_TAG_BOOL:
      return v.as.i64 ? "True" : "False";
    case OPDOCK_TAG_INT:
      return std::to_string(v.as.i64);
    case OPDOCK_TAG_FLOAT: {
      char text[32];
      std::snprintf(text, sizeof text, "%.3gf", v.as.f64);
      return text;
    }
    case OPDOCK_TAG_STRING:
      return "'" + std::string(v.as.str->data, v.as.str->size) + "'";
    case OPDOCK_TAG_LIST: {
      std::string text = "[";
      for (uint64_t i = 0; i < v.as.list->count; ++i) text += text_of(v.as.list->data[i]) + ";";
      return text + "]";
    }
    case OPDOCK_TAG_COMPLEX:
      return std::to_string(static_cast<int>(v.as.c128[0])) + "+0j";
    default:
      return "tag" + std::to_string(v.tag);
  }
}

const opdock_op& the_op() {
  static const opdock_op op = make_op(
      "op(int a, float b=2, *, str c=\"x\", int[] d=[1, 2], bool? e=None, complex f=3, int g=7) -> "
      "()");
  return op;
}

struct Bind {
  std::vector<opdock_value> positional;
  std::vector<std::pair<const char*, opdock_value>> named;
  std::string result;  // the bound values, or part of the error
};

std::string bind_text(TestFunction& f, const Bind& row, opdock_status* status) {
  std::vector<const char*> names;
  std::vector<opdock_value> values;
  for (const auto& [name, value] : row.named) {
    names.push_back(name);
    values.push_back(value);
  }
  opdock_value bound[8];
  *status = bind(f.function, row.positional.data(), static_cast<uint32_t>(row.positional.size()),
                 names.data(), values.data(), static_cast<uint32_t>(names.size()), bound,
                 {f.error, sizeof f.error});
  if (*status != OPDOCK_OK) return f.error;
  std::string text;
  for (size_t i = 0; i < f.function.num_params(); ++i) text += (i ? " " : "") + text_of(bound[i]);
  return text;
}

TEST(Binder, FillsInDefaultsAndOrder) {
  TestFunction f(&the_op());
  A a;
  const Bind rows[] = {
      {{A::integer(1)}, {}, "1 2f 'x' [1;2;] None 3+0j 7"},
      {{A::integer(1), A::real(0.5)}, {}, "1 0.5f 'x' [1;2;] None 3+0j 7"},
      {{A::integer(1), A::integer(4)}, {}, "1 4f 'x' [1;2;] None 3+0j 7"},
      {{}, {{"a", A::integer(9)}}, "9 2f 'x' [1;2;] None 3+0j 7"},
      {{}, {{"g", A::integer(0)}, {"a", A::integer(9)}}, "9 2f 'x' [1;2;] None 3+0j 0"},
      {{A::integer(1)}, {{"b", A::integer(3)}}, "1 3f 'x' [1;2;] None 3+0j 7"},
      {{A::integer(1)}, {{"c", a.text("yz")}}, "1 2f 'yz' [1;2;] None 3+0j 7"},
      {{A::integer(1)}, {{"d", a.list({})}}, "1 2f 'x' [] None 3+0j 7"},
      {{A::integer(1)}, {{"e", A::boolean(false)}}, "1 2f 'x' [1;2;] False 3+0j 7"},
      {{A::integer(1)}, {{"e", A::none()}}, "1 2f 'x' [1;2;] None 3+0j 7"},
  };
  for (const Bind& row : rows) {
    opdock_status status;
    EXPECT_EQ(bind_text(f, row, &status), row.result);
    EXPECT_EQ(status, OPDOCK_OK);
  }
}

TEST(Binder, TakesItsOwnNamesByPointer) {
  TestFunction f(&the_op());
  const char* name = f.function.params()[0].name;
  opdock_value value = A::integer(5), bound[8];
  ASSERT_EQ(bind(f.function, nullptr, 0, &name, &value, 1, bound, {}), OPDOCK_OK);
  EXPECT_EQ(bound[0].as.i64, 5);
}

TEST(Binder, RefusesByName) {
  TestFunction f(&the_op());
  A a;
  const opdock_value one = A::integer(1);
  const Bind rows[] = {
      {{}, {}, "op: argument 'a': found nothing, wanted int"},
      {{}, {{"b", A::real(1)}}, "argument 'a': found nothing"},
      {{one}, {{"a", one}}, "argument 'a': found it given twice, by position and by name"},
      {{}, {{"a", one}, {"a", one}}, "argument 'a': found it given twice"},
      {{one}, {{"zeta", one}}, "argument 'zeta': found an unexpected name, wanted one of a, b, c"},
      {{one}, {{"", one}}, "argument '': found an unexpected name"},
      {{one}, {{"A", one}}, "argument 'A'"},
      {{one, one, a.text("x")}, {}, "argument 'c': found it given by position, wanted by name"},
      {{one, one, one, one, one, one, one, one},
       {},
       "found 8 positional arguments, wanted at most 7"},
      {{A::real(1)}, {}, "argument 'a': found a float, wanted int"},
      {{A::none()}, {}, "argument 'a': found None"},
      {{A::boolean(true)}, {}, "argument 'a': found a bool"},
      {{one, a.text("2")}, {}, "argument 'b': found a str, wanted float"},
      {{one, A::boolean(true)}, {}, "argument 'b': found a bool, wanted float"},
      {{one}, {{"c", one}}, "argument 'c': found an int, wanted str"},
      {{one}, {{"d", one}}, "argument 'd': found an int, wanted int[]"},
      {{one},
       {{"d", a.list({A::real(1)})}},
       "argument 'd': found a float as element 0, wanted int[]"},
      {{one}, {{"d", A::none()}}, "argument 'd': found None, wanted int[]"},
      {{one}, {{"e", one}}, "argument 'e': found an int, wanted bool?"},
      {{one}, {{"f", A::real(1)}}, "argument 'f': found a float, wanted complex"},
      {{one}, {{"g", A::none()}}, "argument 'g': found None, wanted int"},
  };
  for (const Bind& row : rows) {
    opdock_status status;
    std::string text = bind_text(f, row, &status);
    EXPECT_EQ(status, OPDOCK_INVALID_ARGUMENT) << row.result;
    EXPECT_NE(text.find(row.result), std::string::npos) << text << " lacks " << row.result;
  }
}

TEST(Function, DescribesItsParameters) {
  static const opdock_op op =
      make_op("op(Tensor(a!) x, Tensor?[] y, Tensor[]? z, *, float s=0.5) -> (Tensor(a!), Tensor)");
  TestFunction f(&op);
  const opdock_param* const p = f.function.params();
  ASSERT_EQ(f.function.num_params(), 4u);
  EXPECT_STREQ(p[0].name, "x");
  EXPECT_EQ(p[0].flags, OPDOCK_PARAM_WRITTEN);
  EXPECT_EQ(p[1].flags, OPDOCK_PARAM_LIST | OPDOCK_PARAM_OPTIONAL_ELEMENTS);
  EXPECT_EQ(p[2].flags, OPDOCK_PARAM_LIST | OPDOCK_PARAM_OPTIONAL);
  EXPECT_EQ(p[3].tag, static_cast<uint32_t>(OPDOCK_TAG_FLOAT));
  EXPECT_EQ(p[3].flags, OPDOCK_PARAM_KEYWORD_ONLY | OPDOCK_PARAM_HAS_DEFAULT);
  EXPECT_EQ(p[3].fallback.as.f64, 0.5);
  EXPECT_EQ(f.function.fresh(), 1u);
  EXPECT_EQ(f.function.num_results(), 2u);
  EXPECT_TRUE(f.function.writes());
}

}  // namespace
}  // namespace opdock
