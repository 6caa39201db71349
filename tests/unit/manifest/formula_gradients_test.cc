// Tests ops that are gradients of formulas: those that plugin.toml declares, those that it need not
// declare, and what is said about mistakes.
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

constexpr const char* kGradientHead = "name = \"p\"\nversion = \"0.1.0\"\nlicense = \"MIT\"\n";

// Returns the mistakes in declarations, a line each: "6:20: found | wanted".
std::string mistakes_in(const std::string& text, std::optional<Manifest>* manifest = nullptr) {
  TemporaryFolder folder;
  std::vector<Reason> reasons;
  std::optional<Manifest> read =
      read_manifest(folder.write("plugin.toml", kGradientHead + text), &reasons);
  if (manifest != nullptr) *manifest = std::move(read);
  std::string out;
  for (const Reason& reason : reasons)
    out +=
        reason.found.substr(reason.found.find("plugin.toml:") + 12) + " | " + reason.wanted + "\n";
  return out;
}

constexpr const char* kForward =
    "[[op]]\nschema = 'f(Tensor x, Tensor? bias=None, *, str how=\"a\") -> Tensor'\n"
    "formula = \"exp(x + bias if bias else x) if how == 'a' else x\"\n";
constexpr const char* kBackwardSchema =
    "g(Tensor dy, Tensor x, Tensor? bias=None, *, str how=\"a\") -> (Tensor, Tensor?)";

std::string backward(const std::string& schema = kBackwardSchema, const std::string& of = "f") {
  return "[[op]]\nschema = '" + schema + "'\ngradient-of = \"" + of + "\"\n";
}

TEST(FormulaGradients, FollowFromTheOtherOp) {
  // The gradient may stand before the op.
  for (const bool is_first : {false, true}) {
    std::optional<Manifest> manifest;
    ASSERT_EQ(mistakes_in(is_first ? backward() + kForward : kForward + backward(), &manifest), "");
    ASSERT_EQ(manifest->ops.size(), 2U);
    const OpDecl& f = manifest->ops[is_first ? 1 : 0];
    const OpDecl& g = manifest->ops[is_first ? 0 : 1];
    EXPECT_EQ(f.gradients, TextList{"x, bias = g(grads[0], x, bias, how=how)"});
    EXPECT_EQ(g.name, "g");
    EXPECT_EQ(g.formula, f.formula);
    EXPECT_EQ(g.of_params, (TextList{"x", "bias"}));
    EXPECT_EQ(g.num_grads, 1U);
    EXPECT_EQ(g.shape, (TextList{"like x", "like bias if bias"}));
    EXPECT_EQ(g.doc, "The gradients of f's x, bias.");
    EXPECT_EQ(g.flag_bits,
              OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_CAPTURE_SAFE | OPDOCK_OP_DETERMINISTIC);
  }
}

TEST(FormulaGradients, OnlyThoseThatTheOtherOpAsksFor) {
  std::optional<Manifest> manifest;
  const std::string forward =
      "[[op]]\nschema = \"f(Tensor x, Tensor y, Tensor z) -> (Tensor, Tensor)\"\n"
      "formula = \"x * y, x + z\"\n[op.gradients]\n\"z, x\" = \"g(grads[0], grads[1], x, y, z)\"\n"
      "y = \"none: not asked for\"\n";
  ASSERT_EQ(mistakes_in(forward + backward("g(Tensor a, Tensor b, Tensor x, Tensor y, Tensor z) -> "
                                           "(Tensor, Tensor)"),
                        &manifest),
            "");
  EXPECT_EQ(manifest->ops.at(1).of_params, (TextList{"z", "x"}));
  EXPECT_EQ(manifest->ops.at(1).shape, (TextList{"like z", "like x"}));
}

TEST(FormulaGradients, AnOpWithoutOneGetsOne) {
  std::optional<Manifest> manifest;
  ASSERT_EQ(mistakes_in(kForward, &manifest), "");
  ASSERT_EQ(manifest->ops.size(), 2U);
  EXPECT_EQ(manifest->ops[0].gradients,
            TextList{"x, bias = f_backward(grads[0], x, bias, how=how)"});
  EXPECT_EQ(manifest->ops[1].schema,
            "f_backward(Tensor grad, Tensor x, Tensor? bias=None, *, str how=\"a\") -> (Tensor, "
            "Tensor?)");
  EXPECT_EQ(manifest->ops[1].formula, manifest->ops[0].formula);
  // Not where there is none, where it would write, and where its name is taken.
  for (const char* const toml : {
           "[[op]]\nschema = \"f(Tensor x) -> Tensor\"\nformula = \"x > 0\"\n",
           "[[op]]\nschema = \"f(Tensor x) -> Tensor\"\nformula = \"x\"\ndtypes = [\"int32\"]\n",
           "[[op]]\nschema = \"f(Tensor(a!) x) -> Tensor(a!)\"\nformula = \"x\"\n",
       }) {
    ASSERT_EQ(mistakes_in(toml, &manifest), "") << toml;
    EXPECT_EQ(manifest->ops.size(), 1U) << toml;
  }
  ASSERT_EQ(mistakes_in("[[op]]\nschema = \"f(Tensor x) -> Tensor\"\nformula = \"x\"\n[[op]]\n"
                        "schema = \"f_backward(Tensor x) -> Tensor\"\nformula = \"x > 0\"\n",
                        &manifest),
            "");
  EXPECT_EQ(manifest->ops.size(), 2U);
}

TEST(FormulaGradients, MistakesAreTold) {
  EXPECT_EQ(mistakes_in(kForward + backward(kBackwardSchema, "h")),
            "9:15: op \"g\": \"gradient-of\": \"h\" | an op of this plugin that has a formula\n");
  EXPECT_EQ(mistakes_in(kForward + backward("g(Tensor dy, Tensor x) -> Tensor")),
            "8:10: op \"g\": \"schema\": g(Tensor dy, Tensor x) -> Tensor | g(Tensor dy, Tensor x, "
            "Tensor? bias=None, *, str how=\"a\") -> (Tensor, Tensor?)\n");
  const std::string none = "gradients = { \"x\" = \"none: no\", \"bias\" = \"none: no\" }\n";
  EXPECT_EQ(mistakes_in(kForward + none + backward()),
            "10:15: op \"g\": \"gradient-of\": \"f\", which declares no gradient by g | \"x, y\" = "
            "\"g(…)\" in its gradients, or none of them declared\n");
  const std::string other = "gradients = { \"x, bias\" = \"g(x, grads[0], bias, how=how)\" }\n";
  EXPECT_EQ(
      mistakes_in(kForward + other + backward()),
      "10:15: op \"g\": \"gradient-of\": a gradient of \"f\" with other arguments | x, bias = "
      "g(grads[0], x, bias, how=how)\n");
  EXPECT_EQ(mistakes_in(kForward + backward() + "formula = \"x\"\n"),
            "9:15: [[op]] 2: \"gradient-of\": a formula as well | one of them: a gradient follows "
            "from the other op's formula\n");
}

}  // namespace
}  // namespace opdock::pack
