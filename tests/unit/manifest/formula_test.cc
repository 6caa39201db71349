// Tests ops that are formulas: what plugin.toml need not say, and what is said about mistakes.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "manifest/manifest.h"
#include "opdock/plugin.h"
#include "support/temporary_folder.h"

namespace opdock::pack {
namespace {

using opdock_test::TemporaryFolder;
using TextList = std::vector<std::string>;

constexpr const char* kFormulaHead = "name = \"p\"\nversion = \"0.1.0\"\nlicense = \"MIT\"\n";

// Returns the mistakes in a declaration, a line each: "6:20: found | wanted".
std::string mistakes_in_op(const std::string& text, std::optional<Manifest>* manifest = nullptr) {
  TemporaryFolder folder;
  std::vector<Reason> reasons;
  std::optional<Manifest> read =
      read_manifest(folder.write("plugin.toml", kFormulaHead + text), &reasons);
  if (manifest != nullptr) *manifest = std::move(read);
  std::string out;
  for (const Reason& reason : reasons)
    out +=
        reason.found.substr(reason.found.find("plugin.toml:") + 12) + " | " + reason.wanted + "\n";
  return out;
}

std::string op_toml(const std::string& schema, const std::string& formula) {
  return "[[op]]\nschema = \"" + schema + "\"\nformula = " + formula + "\n";
}

// Returns the shape rules that an op gets which declares none.
TextList shape_of(const std::string& schema, const std::string& formula) {
  std::optional<Manifest> manifest;
  EXPECT_EQ(mistakes_in_op(op_toml(schema, "\"" + formula + "\""), &manifest), "") << formula;
  return manifest ? manifest->ops.at(0).shape : TextList();
}

TEST(FormulaOp, HasDefaults) {
  std::optional<Manifest> manifest;
  ASSERT_EQ(
      mistakes_in_op(op_toml("f(Tensor x, Tensor y) -> Tensor", "\"\"\"\nz=x*y\n(z)+z\n\"\"\""),
                     &manifest),
      "");
  EXPECT_TRUE(manifest->sources.empty());
  const OpDecl& op = manifest->ops.at(0);
  EXPECT_EQ(op.formula, "z=x*y\n(z)+z\n");
  EXPECT_EQ(op.doc, "z = x * y\nreturn z + z");
  EXPECT_EQ(op.devices, (TextList{"cpu", "cuda", "rocm"}));
  EXPECT_EQ(op.dtypes, (TextList{"float32", "float16", "bfloat16", "float64"}));
  EXPECT_EQ(op.flag_bits, OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_CAPTURE_SAFE | OPDOCK_OP_IN_PLACE |
                              OPDOCK_OP_DETERMINISTIC);
  EXPECT_EQ(op.shape, TextList{"[broadcast(x, y)]"});
}

TEST(FormulaOp, WhatItSaysCounts) {
  std::optional<Manifest> manifest;
  const std::string more =
      "doc = \"Sums.\"\ndevices = [\"cuda\"]\ndtypes = [\"int32\"]\nflags = [\"thread-safe\"]\n"
      "shape = [\"like y\"]\n";
  ASSERT_EQ(
      mistakes_in_op(op_toml("f(Tensor x, Tensor y) -> Tensor", "\"x + y\"") + more, &manifest),
      "");
  const OpDecl& op = manifest->ops.at(0);
  EXPECT_EQ(op.doc, "Sums.");
  EXPECT_EQ(op.devices, TextList{"cuda"});
  EXPECT_EQ(op.dtypes, TextList{"int32"});
  EXPECT_EQ(op.flag_bits, OPDOCK_OP_THREAD_SAFE);
  EXPECT_EQ(op.shape, TextList{"like y"});
}

TEST(FormulaOp, ShapesFollowTheFormula) {
  EXPECT_EQ(shape_of("f(Tensor x) -> Tensor", "x - mean(x)"), TextList{"like x"});
  EXPECT_EQ(shape_of("f(Tensor x) -> Tensor", "mean(x)"), TextList{"[x.shape[:-1]]"});
  EXPECT_EQ(shape_of("f(Tensor x) -> Tensor", "argmax(x)"),
            TextList{"[x.shape[:-1]], dtype int64"});
  EXPECT_EQ(shape_of("f(Tensor x, Tensor y) -> Tensor", "x < y"),
            TextList{"[broadcast(x, y)], dtype bool"});
  EXPECT_EQ(shape_of("f(Tensor x) -> Tensor", "x.float()"), TextList{"like x, dtype float32"});
  EXPECT_EQ(shape_of("f(Tensor x, Tensor y) -> Tensor", "x & y"), TextList{"[broadcast(x, y)]"});
  EXPECT_EQ(shape_of("f(Tensor x) -> (Tensor, Tensor)", "x, sum(x)"),
            (TextList{"like x", "[x.shape[:-1]]"}));
  EXPECT_EQ(shape_of("f(Tensor(a!) y, Tensor x) -> (Tensor(a!), Tensor)", "x + y, amax(x)"),
            TextList{"[broadcast(y, x)[:-1]], dtype like x"});
  // By their defaults the choices are: all of the row.
  EXPECT_EQ(shape_of("f(Tensor x, bool whole=True) -> Tensor", "x if whole else sum(x)"),
            TextList{"like x"});
  EXPECT_EQ(shape_of("f(Tensor x, bool whole=False) -> Tensor", "x if whole else sum(x)"),
            TextList{"[x.shape[:-1]]"});
  EXPECT_EQ(shape_of("f(Tensor x, str how=\\\"sum\\\") -> Tensor", "sum(x) if how == 'sum' else x"),
            TextList{"[x.shape[:-1]]"});
  EXPECT_EQ(shape_of("f(Tensor x, Tensor? w=None) -> Tensor", "x * w if w else sum(x)"),
            TextList{"[broadcast(x, w)]"});
  EXPECT_EQ(shape_of("f(Tensor x, Tensor a, Tensor b) -> Tensor", "where(x, a, b)"),
            TextList{"[broadcast(x, a, b)], dtype like a"});
  EXPECT_EQ(shape_of("f(Tensor x) -> Tensor", "a, b = chunk(x, 2); a * b"),
            TextList{"[x.shape[:-1], x.shape[-1] // 2]"});
  EXPECT_EQ(shape_of("f(Tensor x) -> Tensor", "a, b = chunk(x, 2); cat(b, a)"), TextList{"like x"});
  EXPECT_EQ(shape_of("f(Tensor x) -> Tensor", "cat(x, -x)"),
            TextList{"[x.shape[:-1], 2 * x.shape[-1]]"});
  EXPECT_EQ(shape_of("f(Tensor x) -> Tensor", "a, b, c = chunk(x, 3); cat(b + c, a)"),
            TextList{"[x.shape[:-1], 2 * (x.shape[-1] // 3)]"});
  EXPECT_EQ(shape_of("f(Tensor x, Tensor y) -> (Tensor, Tensor)",
                     "a, b = chunk(x, 2); a + y, cat(a, b * y)"),
            (TextList{"[broadcast(chunk(x, 2), y)]",
                      "[broadcast(chunk(x, 2), y)[:-1], 2 * broadcast(chunk(x, 2), y)[-1]]"}));
  EXPECT_EQ(shape_of("f(Tensor q, Tensor s, *, ScalarType? dtype=None) -> Tensor",
                     "to(q * grouped(s), dtype if dtype else float32)"),
            TextList{"like q, dtype dtype if dtype else like q, dtype float32"});
  EXPECT_EQ(shape_of("f(Tensor q, ScalarType d) -> Tensor", "q.to(d)"),
            TextList{"like q, dtype d"});
}

struct FaultyFormula {
  const char* schema;
  const char* formula;  // as TOML
  const char* told;
};

TEST(FormulaOp, MistakesAreToldWhereTheyAre) {
  const FaultyFormula rows[] = {
      {"f(Tensor x) -> Tensor", "\"x * sigmid(x)\"",
       "6:16: op \"f\": \"formula\": \"sigmid\" | a function; did you mean sigmoid?\n"},
      {"f(Tensor x) -> Tensor", "'''\ny = x\nx * yy'''",
       "8:5: op \"f\": \"formula\": \"yy\" | a parameter, or a variable that was assigned before; "
       "did you mean y?\n"},
      {"f(Tensor x) -> Tensor", "\"\"\"y = x\nx * yy\"\"\"",
       "7:5: op \"f\": \"formula\": \"yy\" | a parameter, or a variable that was assigned before; "
       "did you mean y?\n"},
      {"f(Tensor x) -> Tensor", "'x\\ty'",
       "6:13: op \"f\": \"formula\": \"\\\" | an operator; a line goes on in the next one within "
       "parentheses\n"},
      // The file has the text with an escape, so only its beginning is known there.
      {"f(Tensor x) -> Tensor", "\"x +\\u0020+ sigmid(x)\"",
       "6:11: op \"f\": \"formula\": line 1, column 7: found \"sigmid\" | a function; did you mean "
       "sigmoid?\n"},
      {"f(Tensor x) -> Tensor", "\"x, x\"",
       "6:11: op \"f\": \"formula\": 2 results of the formula | the 1 of the schema\n"},
      {"f(Tensor x, Tensor y) -> Tensor", "\"x\"",
       "6:12: op \"f\": \"formula\": parameter \"y\": found no use in the formula | one; use it or "
       "remove it\n"},
      {"f(Tensor x, int[] n) -> Tensor", "\"x\"",
       "5:10: op \"f\": \"formula\": parameter 'n': found int[] | Tensor, float, int, bool, str "
       "or ScalarType, which formulas take\n"},
      {"f(Tensor x) -> Tensor", "3",
       "6:11: [[op]] 1: \"formula\": integer | a text that is not empty\n"},
      {"f(Tensor x) -> Tensor", "''",
       "6:11: [[op]] 1: \"formula\": \"\" | a text that is not empty\n"},
      {"f(Tensor x) -> Tensor?", "\"x\"",
       "6:11: op \"f\": \"formula\": a result of type Tensor? | Tensor or Tensor(a!)\n"},
      {"f(float x) -> Tensor", "\"x\"",
       "6:11: op \"f\": \"formula\": no tensor among the parameters | at least one\n"},
  };
  for (const FaultyFormula& row : rows)
    EXPECT_EQ(mistakes_in_op(op_toml(row.schema, row.formula)), row.told) << row.formula;
}

TEST(FormulaOp, OpsWithCodeOfTheirOwnNeedTheRest) {
  EXPECT_EQ(mistakes_in_op(op_toml("f(Tensor x) -> Tensor", "\"x\"") +
                           "[[op]]\nschema = \"g(Tensor x) -> Tensor\"\n"),
            "1:1: no \"sources\" | a list of texts\n"
            "7:1: [[op]] 2: no \"doc\" | a text\n"
            "7:1: [[op]] 2: no \"devices\" | a list of texts\n"
            "7:1: [[op]] 2: no \"dtypes\" | a list of texts\n"
            "7:1: op \"g\": \"shape\": 0 rules | 1: one for each result that is a Tensor, Tensor? "
            "or Tensor[] and no parameter\n");
}

}  // namespace
}  // namespace opdock::pack
