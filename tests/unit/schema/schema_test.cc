// SPDX-License-Identifier: Apache-2.0
#include "schema/schema.h"

#include <gtest/gtest.h>

#include "opdock/plugin.h"

namespace opdock {
namespace {

struct Accepted {
  const char* text;
  const char* canonical;  // NULL: the text itself
};

class SchemaAccepts : public testing::TestWithParam<Accepted> {};

TEST_P(SchemaAccepts, AndGivesItsCanonicalText) {
  Reason error;
  std::optional<Schema> schema = parse_schema(GetParam().text, &error);
  ASSERT_TRUE(schema) << to_text(error);
  const char* canonical = GetParam().canonical ? GetParam().canonical : GetParam().text;
  EXPECT_EQ(schema->text(), canonical);
  std::optional<Schema> again = parse_schema(schema->text(), &error);
  ASSERT_TRUE(again) << to_text(error);
  EXPECT_EQ(again->text(), canonical);
  EXPECT_EQ(again->digest(), schema->digest());
}

INSTANTIATE_TEST_SUITE_P(
    Grammar, SchemaAccepts,
    testing::Values(
        Accepted{"f() -> ()", nullptr}, Accepted{"f(Tensor x) -> Tensor", nullptr},
        Accepted{"f(Tensor x) -> (Tensor, Tensor)", nullptr},
        Accepted{"f(Tensor x) -> (Tensor)", "f(Tensor x) -> Tensor"},
        Accepted{"  f ( Tensor   x )->Tensor ", "f(Tensor x) -> Tensor"},
        Accepted{"f(Tensor(a!) x) -> ()", nullptr}, Accepted{"f(int n) -> Tensor[]", nullptr},
        Accepted{"f(Object( h ) x) -> (Tensor?, int, float, bool, Object(h))",
                 "f(Object(h) x) -> (Tensor?, int, float, bool, Object(h))"},
        Accepted{"f(Tensor(a!) x) -> Tensor(a!)", nullptr},
        Accepted{"f(Tensor(a!) x, Tensor(b!) y) -> (Tensor(b!), Tensor, Tensor(a!))", nullptr},
        Accepted{"f(Tensor(a!)[] xs, Tensor(b!)? y=None) -> ()", nullptr},
        Accepted{"f(Tensor? x, Tensor[] y, Tensor?[] z, Tensor[]? w=None) -> Tensor", nullptr},
        Accepted{"f(int a, float b, bool c, str d, complex e, ScalarType f) -> ()", nullptr},
        Accepted{"f(Device a, Stream b, Generator c, Object(aio_handle) d) -> ()", nullptr},
        Accepted{"f(int? a, float? b, bool? c, str? d, ScalarType? e, Generator? g) -> ()",
                 nullptr},
        Accepted{"f(int[] a, float[]? b, bool[] c, str[] d, Object(a.b)[] e) -> ()", nullptr},
        Accepted{"f(Tensor x, *, float a=1.0) -> Tensor", nullptr},
        Accepted{"f(*, int a) -> Tensor", nullptr},
        Accepted{"f(Tensor x, *, float a=1, int b) -> Tensor",
                 "f(Tensor x, *, float a=1.0, int b) -> Tensor"},
        Accepted{"f(float a=1e-5, float b=-0.25, float c=100000000000000000000) -> ()",
                 "f(float a=1e-05, float b=-0.25, float c=1e+20) -> ()"},
        Accepted{"f(int a=-9223372036854775808, int b=9223372036854775807) -> ()", nullptr},
        Accepted{"f(int a=007) -> ()", "f(int a=7) -> ()"},
        Accepted{"f(bool a=True, bool b=False) -> ()", nullptr},
        Accepted{"f(str a=\"x \\\"y\\\" \\\\\", str b=\"\") -> ()", nullptr},
        Accepted{"f(str a=\"Gr\xc3\xbc\xc3\x9f\x65\") -> ()", nullptr},
        Accepted{"f(int[] a=[], int[] b=[1,2 , 3], int[]? c=None) -> ()",
                 "f(int[] a=[], int[] b=[1, 2, 3], int[]? c=None) -> ()"},
        Accepted{"f(float[] a=[1, .5], bool[] b=[True], str[] c=[\"a\", \"b\"]) -> ()",
                 "f(float[] a=[1.0, 0.5], bool[] b=[True], str[] c=[\"a\", \"b\"]) -> ()"},
        Accepted{"f(complex a=2.5) -> ()", nullptr}, Accepted{"_f1(Tensor _x1) -> Tensor", nullptr},
        Accepted{"f(Tensor Tensor, int None_=0) -> Tensor", nullptr}));

struct Refused {
  const char* text;
  const char* found;   // part of reason.found
  const char* wanted;  // part of reason.wanted
};

class SchemaRefuses : public testing::TestWithParam<Refused> {};

TEST_P(SchemaRefuses, AndSaysWhereAndWhatIsAllowed) {
  Reason error;
  ASSERT_FALSE(parse_schema(GetParam().text, &error));
  EXPECT_EQ(error.code, Code::kSchemaInvalid);
  EXPECT_NE(error.found.find(GetParam().found), std::string::npos) << to_text(error);
  EXPECT_NE(error.wanted.find(GetParam().wanted), std::string::npos) << to_text(error);
  EXPECT_NE(error.found.find(GetParam().text), std::string::npos) << to_text(error);
}

INSTANTIATE_TEST_SUITE_P(
    Grammar, SchemaRefuses,
    testing::Values(
        Refused{"", "the end at position 0", "the op's name"},
        Refused{"3f() -> ()", "'3f' at position 0", "the op's name"},
        Refused{"f", "the end at position 1", "'('"},
        Refused{"f.out(Tensor x) -> Tensor", "'.' at position 1", "overload"},
        Refused{"ns::f(Tensor x) -> Tensor", "':' at position 2", "namespaces"},
        Refused{"lambda(Tensor x) -> Tensor", "'lambda' at position 0", "Python keyword"},
        Refused{"f(Tensor x)", "the end at position 11", "'->'"},
        Refused{"f(Tensor x) Tensor", "'Tensor' at position 12", "'->'"},
        Refused{"f(Tensor x) ->", "the end at position 14", "a type"},
        Refused{"f(Tensor x) -> str", "'str' at position 15", "a result"},
        Refused{"f(Tensor x) -> int[]", "'int' at position 15", "a result"},
        Refused{"f(Tensor x) -> float?", "'float' at position 15", "a result"},
        Refused{"f(Tensor x) -> Tensor?[]", "'Tensor' at position 15", "a result"},
        Refused{"f(Tensor x) -> Tensor[]?", "'Tensor' at position 15", "a result"},
        Refused{"f(Tensor(a!) x) -> Tensor(a!)?", "'Tensor' at position 19", "a result"},
        Refused{"f(Object x) -> ()", "'x' at position 9", "'('"},
        Refused{"f(Object() x) -> ()", "')' at position 9", "the object's type"},
        Refused{"f(Object(a b) x) -> ()", "'b' at position 11", "')'"},
        Refused{"f(Tensor x) -> Tensor y", "'y' at position 22", "the end of the schema"},
        Refused{"f(Tensor x) -> (Tensor y)", "'y' at position 23", "no names"},
        Refused{"f(Tensor x) -> Tensor(a!)", "'Tensor' at position 15", "alias letter"},
        Refused{"f(Tensor(a!)[] x) -> Tensor(a!)", "'Tensor' at position 21", "plain Tensor"},
        Refused{"f(Tensor(a!)? x) -> Tensor(a!)", "'Tensor' at position 20", "plain Tensor"},
        Refused{"f(Tensor(a!) x) -> (Tensor(a!), Tensor(a!))", "position 32", "once"},
        Refused{"f(Tensor(a!) x, Tensor(a!) y) -> ()", "'y' at position 27", "no other parameter"},
        Refused{"f(Tensor(a) x) -> ()", "')' at position 10", "'!'"},
        Refused{"f(Tensor(a! -> b) x) -> ()", "'-' at position 12", "')'"},
        Refused{"f(Tensor(*!) x) -> ()", "'(' at position 8", "an alias such as (a!)"},
        Refused{"f(Tensor(ab!) x) -> ()", "'(' at position 8", "an alias such as (a!)"},
        Refused{"f(Tensor(A!) x) -> ()", "'(' at position 8", "an alias such as (a!)"},
        Refused{"f(int(a!) x) -> ()", "'(' at position 5", "only Tensor"},
        Refused{"f(Tensor(a!)?[] x) -> ()", "position 2", "not both"},
        Refused{"f(tensor x) -> ()", "'tensor' at position 2", "one of Tensor"},
        Refused{"f(Scalar x) -> ()", "'Scalar' at position 2", "one of Tensor"},
        Refused{"f(Dict x) -> ()", "'Dict' at position 2", "one of Tensor"},
        Refused{"f(SymInt x) -> ()", "'SymInt' at position 2", "one of Tensor"},
        Refused{"f(Any x) -> ()", "'Any' at position 2", "one of Tensor"},
        Refused{"f((int, int) x) -> ()", "'(' at position 2", "one of Tensor"},
        Refused{"f(int[2] x) -> ()", "'2' at position 6", "no fixed size"},
        Refused{"f(int[][] x) -> ()", "'[' at position 7", "do not nest"},
        Refused{"f(int?? x) -> ()", "'?' at position 6", "do not nest"},
        Refused{"f(int?[] x) -> ()", "'int' at position 2", "Tensor?[]"},
        Refused{"f(Stream[] x) -> ()", "'Stream' at position 2", "list of Stream"},
        Refused{"f(Generator[] x) -> ()", "'Generator' at position 2", "list of Generator"},
        Refused{"f(Tensor) -> ()", "')' at position 8", "name after its type"},
        Refused{"f(Tensor in) -> ()", "'in' at position 9", "Python keyword"},
        Refused{"f(Tensor x, Tensor x) -> ()", "'x' at position 19", "no other parameter"},
        Refused{"f(Tensor x Tensor y) -> ()", "'Tensor' at position 11", "',' or ')'"},
        Refused{"f(Tensor x,) -> ()", "')' at position 11", "a type"},
        Refused{"f(Tensor x, ...) -> ()", "'.' at position 12", "a type"},
        Refused{"f(*) -> ()", "')' at position 3", "parameter after '*'"},
        Refused{"f(*, int a, *, int b) -> ()", "'*' at position 12", "one '*'"},
        Refused{"f(int a=1, int b) -> ()", "'b' at position 15", "default for 'b'"},
        Refused{"f(int a=) -> ()", "')' at position 8", "an integer"},
        Refused{"f(int a=1.5) -> ()", "'1' at position 8", "an integer"},
        Refused{"f(int a=9223372036854775808) -> ()", "position 8", "fits 64 bits"},
        Refused{"f(int a=True) -> ()", "'True' at position 8", "an integer"},
        Refused{"f(int a=None) -> ()", "'None' at position 8", "make the type int?"},
        Refused{"f(int a=+1) -> ()", "'+' at position 8", "an integer"},
        Refused{"f(float a=x) -> ()", "'x' at position 10", "a number"},
        Refused{"f(float a=1e999) -> ()", "position 10", "a number"},
        Refused{"f(float a=1.2.3) -> ()", "position 10", "a number"},
        Refused{"f(float a=inf) -> ()", "'inf' at position 10", "a number"},
        Refused{"f(bool a=1) -> ()", "'1' at position 9", "True or False"},
        Refused{"f(bool a=true) -> ()", "'true' at position 9", "True or False"},
        Refused{"f(str a=x) -> ()", "'x' at position 8", "double quotes"},
        Refused{"f(str a='x') -> ()", "''' at position 8", "double quotes"},
        Refused{"f(str a=\"x) -> ()", "'\"' at position 8", "closing"},
        Refused{"f(str a=\"\\n\") -> ()", "'\\' at position 9", "after a backslash"},
        Refused{"f(int[] a=1) -> ()", "'1' at position 10", "a list"},
        Refused{"f(int[] a=[1) -> ()", "')' at position 12", "',' or ']'"},
        Refused{"f(int[] a=[1,]) -> ()", "']' at position 13", "an integer"},
        Refused{"f(int[] a=None) -> ()", "'None' at position 10", "make the type int[]?"},
        Refused{"f(Tensor a=1) -> ()", "'1' at position 11", "None"},
        Refused{"f(ScalarType a=float32) -> ()", "'float32' at position 15", "None"},
        Refused{"f(Tensor x) -> Tensor;", "';' at position 21", "the end of the schema"}));

TEST(Schema, RefusesMoreParametersThanACallHolds) {
  std::string text = "f(";
  for (size_t i = 0; i <= kMaxParams; ++i) {
    text += (i ? ", int a" : "int a") + std::to_string(i);
  }
  Reason error;
  EXPECT_FALSE(parse_schema(text + ") -> ()", &error));
  EXPECT_NE(error.wanted.find("at most 64 parameters"), std::string::npos) << error.wanted;
}

TEST(Schema, RefusesMoreResultsThanACallHolds) {
  std::string text = "f() -> (Tensor";
  for (size_t i = 0; i < kMaxReturns; ++i) text += ", Tensor";
  Reason error;
  EXPECT_FALSE(parse_schema(text + ")", &error));
  EXPECT_NE(error.wanted.find("at most 32 results"), std::string::npos) << error.wanted;
}

TEST(Schema, DigestIsOfTheCanonicalText) {
  Reason error;
  // printf '%s' 'f(Tensor x, *, float a=1.0) -> Tensor' | sha256sum
  std::optional<Schema> schema = parse_schema("f(Tensor x,*,float a=1)->(Tensor)", &error);
  ASSERT_TRUE(schema);
  EXPECT_EQ(schema->digest(), "2d7e561fa33cf6d50231a95176e977ebc4bf1056b7e8b8778760862a8eb5f605");
}

TEST(Schema, KnowsItsParts) {
  Reason error;
  std::optional<Schema> schema = parse_schema(
      "f(int n, Tensor?[] xs, Tensor(a!) y, *, float eps=1e-6) -> (Tensor(a!), Tensor)", &error);
  ASSERT_TRUE(schema) << to_text(error);
  EXPECT_EQ(schema->fresh_results(), 1u);
  EXPECT_EQ(schema->first_tensor(), 1);
  EXPECT_EQ(schema->find("eps"), 3);
  EXPECT_EQ(schema->find("zeta"), -1);
  EXPECT_TRUE(schema->params[1].type.optional_element);
  EXPECT_EQ(schema->params[2].type.alias, 'a');
  EXPECT_FALSE(schema->params[2].keyword_only);
  EXPECT_TRUE(schema->params[3].keyword_only);
  EXPECT_EQ(schema->params[3].fallback->real, 1e-6);
  EXPECT_EQ(schema->returns[0].param, 2);
}

}  // namespace
}  // namespace opdock
