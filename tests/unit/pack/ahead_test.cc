// Tests which kernels of formulas are built ahead.
// SPDX-License-Identifier: Apache-2.0
#include "fused/ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "formula/device_launch.h"
#include "formula/rewrite.h"
#include "manifest/formula_parameters.h"
#include "support/temporary_folder.h"

namespace opdock {
namespace {

using formula::DeviceShape;
using formula::Graph;
using formula::Type;

AheadGraphs graphs_of(const std::string& schema_text, const std::string& text,
                      const std::vector<Type>& types = {Type::kFloat32}) {
  const std::optional<Schema> schema = parse_schema(schema_text, nullptr);
  return ahead_graphs(*schema, formula::Formula(text, formula_parameters(*schema)), types);
}

AheadGraphs gradients_of(const std::string& schema_text, const std::string& text,
                         const std::vector<std::string>& params,
                         const std::vector<std::string>& rules,
                         const std::vector<Type>& types = {Type::kFloat32}) {
  const std::optional<Schema> schema = parse_schema(schema_text, nullptr);
  return ahead_gradient_graphs(*schema, formula::Formula(text, formula_parameters(*schema)), params,
                               *parse_tensor_rules(rules, *schema, nullptr), types);
}

size_t num_different(const std::vector<Graph>& graphs) {
  std::set<std::string> keys;
  for (const Graph& graph : graphs) keys.insert(graph.key());
  return keys.size();
}

TEST(Ahead, EachTypeAndEachChoice) {
  EXPECT_EQ(num_different(graphs_of("f(Tensor x, Tensor y) -> Tensor", "x * y",
                                    {Type::kFloat32, Type::kInt8, Type::kFloat64})
                              .graphs),
            3u);
  const AheadGraphs all = graphs_of(
      "f(Tensor x, Tensor? w=None, float? s=None, bool b=False, str mode=\"a\") -> Tensor",
      "y = x * w if w else x\nz = y * s if s else y\nv = z + 1 if b else z\n"
      "return tanh(v) if mode == \"b\" else v");
  EXPECT_TRUE(all.is_whole);
  EXPECT_EQ(all.graphs.size(), 16u);
  EXPECT_EQ(num_different(all.graphs), 16u);
  // The usual call comes first: what is optional is there, and choices are their defaults.
  EXPECT_EQ(all.graphs[0].inputs().size(), 2u);
  EXPECT_EQ(all.graphs[0].scalars().size(), 1u);
}

TEST(Ahead, OtherTextsAndDtypesAreChoices) {
  const AheadGraphs texts = graphs_of("f(Tensor x, str mode=\"a\") -> Tensor",
                                      "return exp(x) if mode == \"a\" else x + 1");
  EXPECT_EQ(num_different(texts.graphs), 2u);
  const AheadGraphs types = graphs_of("f(Tensor x, ScalarType? dtype=None) -> Tensor",
                                      "to(x * 2, dtype if dtype else float32)", {Type::kInt8});
  EXPECT_EQ(num_different(types.graphs), 3u);
}

TEST(Ahead, ScalesOfIntegersAreFloat32) {
  const std::string schema_text = "f(Tensor q, Tensor scale) -> Tensor";
  const std::string text = "q * grouped(scale)";
  const AheadGraphs ahead = graphs_of(schema_text, text, {Type::kInt8, Type::kBfloat16});
  ASSERT_EQ(ahead.graphs.size(), 2u);
  const Schema schema = *parse_schema(schema_text, nullptr);
  const formula::Formula formula(text, formula_parameters(schema));
  formula::Argument q, scale;  // of a call
  q.type = Type::kInt8;
  scale.type = Type::kFloat32;
  scale.rank = 1;
  EXPECT_EQ(cpu_code_name(ahead.graphs[0]), cpu_code_name(formula.graph({q, scale})));
  q.type = scale.type = Type::kBfloat16;
  EXPECT_EQ(cpu_code_name(ahead.graphs[1]), cpu_code_name(formula.graph({q, scale})));
}

TEST(Ahead, CpuCodeHasANameOfItsOwnContents) {
  const auto code_of = [](const char* text, Type type) {
    AheadCpuCode code;
    EXPECT_TRUE(add_ahead_cpu_code(
        graphs_of("f(Tensor x, Tensor y) -> Tensor", text, {type}).graphs, &code));
    return code;
  };
  const AheadCpuCode first = code_of("x * y + 1", Type::kFloat32);
  ASSERT_EQ(first.names.size(), 1u);
  EXPECT_NE(first.source.find("void " + first.names[0] + "("), std::string::npos);
  EXPECT_EQ(code_of("p = x * y\nreturn p + 1", Type::kFloat32).names, first.names);
  EXPECT_NE(code_of("x * y + 2", Type::kFloat32).names, first.names);
  EXPECT_NE(code_of("x * y + 1", Type::kFloat16).names, first.names);
  // Calls with tensors of one dimension run the same code.
  const Schema schema = *parse_schema("f(Tensor x, Tensor y) -> Tensor", nullptr);
  const formula::Formula formula("x * y + 1", formula_parameters(schema));
  formula::Argument x;
  x.rank = 1;
  EXPECT_EQ(cpu_code_name(formula.graph({x, x})), first.names[0]);
}

TEST(Ahead, ChoicesHaveALimit) {
  const std::string schema =
      "f(Tensor x, bool a, bool b, bool c, bool d, bool e, bool f=True) -> Tensor";
  const std::string text =
      "p = x + 1 if a else x\nq = p * 3 if b else p\nr = q - 5 if c else q\n"
      "s = exp(r) if d else r\nt = sqrt(s) if f else s\nreturn tanh(t) if e else t";
  const AheadGraphs found = graphs_of(schema, text, {Type::kFloat32, Type::kFloat16});
  EXPECT_FALSE(found.is_whole);
  EXPECT_EQ(found.graphs.size(), 2 * kMaxChoices);
}

TEST(Ahead, WhatTheFormulaDoesNotTakeIsLeftOut) {
  const AheadGraphs bits =
      graphs_of("f(Tensor x) -> Tensor", "x << 1", {Type::kFloat32, Type::kInt32, Type::kUint8});
  EXPECT_TRUE(bits.is_whole);
  EXPECT_EQ(bits.graphs.size(), 2u);
}

TEST(Ahead, ShapesAreThoseOfContiguousRows) {
  const Graph plain = graphs_of("f(Tensor x) -> Tensor", "x + 1").graphs.at(0);
  const std::vector<DeviceShape> flat = ahead_shapes(plain);
  ASSERT_EQ(flat.size(), 4u);  // of one row or more, of whole vectors or not
  EXPECT_EQ(flat[0].dims + flat[1].dims + flat[2].dims + flat[3].dims, 2);
  const Graph rows = formula::with_plain_reductions(
      graphs_of("f(Tensor x) -> Tensor", "x - mean(x)").graphs.at(0));
  std::set<std::pair<bool, int>> held;
  for (const DeviceShape& shape : ahead_shapes(rows)) {
    EXPECT_EQ(shape.dims, 1);
    EXPECT_FALSE(shape.is_wide);
    held.emplace(shape.is_block, shape.held);
  }
  EXPECT_EQ(held, (std::set<std::pair<bool, int>>{
                      {false, 1}, {false, 2}, {true, 2}, {true, 4}, {true, 8}}));
}

// A launch of any such tensor finds its kernel, whatever the length of its rows.
TEST(Ahead, NoLengthIsForgotten) {
  const Graph graph = formula::with_plain_reductions(
      graphs_of("f(Tensor x, Tensor y) -> Tensor", "x * y - sum(x)").graphs.at(0));
  const std::vector<DeviceShape> known = ahead_shapes(graph);
  for (int64_t columns = 4; columns <= 16384; columns += 4 + columns / 256 * 4) {
    const int64_t shape[] = {3, columns}, strides[] = {columns, 1};
    const formula::Operand x = {nullptr, 2, shape, strides};
    for (const formula::DeviceTraits& traits : {formula::DeviceTraits{.multiprocessors = 108},
                                                {.multiprocessors = 108, .warp_size = 64},
                                                {.multiprocessors = 132, .has_clusters = true}}) {
      const formula::DeviceShape found =
          plan_launch(graph, make_space(graph, {x, x}, {x}), traits, true).shape;
      EXPECT_NE(std::find(known.begin(), known.end(), found), known.end()) << columns;
    }
  }
}

TEST(Ahead, NamesFollowTheKernel) {
  const auto name = [](const char* text, Type type, const DeviceShape& shape) {
    const Graph graph = graphs_of("f(Tensor x, Tensor y) -> Tensor", text, {type}).graphs.at(0);
    return ahead_name("f", formula::device_source(graph, shape));
  };
  const std::string one = name("x * y", Type::kFloat32, {});
  EXPECT_EQ(one.substr(0, 19), "opdock::formula::f_");
  EXPECT_EQ(one.size(), 19 + 16 + 3u);
  EXPECT_EQ(name("x * y", Type::kFloat32, {}), one);
  EXPECT_NE(name("x + y", Type::kFloat32, {}), one);
  EXPECT_NE(name("x * y", Type::kFloat16, {}), one);
  EXPECT_NE(name("x * y", Type::kFloat32, {.dims = 1}), one);
}

TEST(Ahead, WeightsOfRowsAreTheSameInAllRows) {
  const AheadGraphs found = graphs_of("f(Tensor x, Tensor w) -> Tensor",
                                      "x * rsqrt(sum(x * x)) * (1 + w)", {Type::kBfloat16});
  ASSERT_EQ(found.graphs.size(), 2u);
  EXPECT_EQ(found.graphs[0].inputs()[1].rank, 2);
  EXPECT_EQ(found.graphs[1].inputs()[0].rank, 2);
  EXPECT_EQ(found.graphs[1].inputs()[1].rank, 1);
}

TEST(Ahead, GradientsOfUsualCalls) {
  const std::string schema = "f(Tensor x, Tensor b) -> Tensor";
  // b has a graph for either shape, as none is declared.
  const AheadGraphs any = gradients_of(schema, "tanh(x + b)", {"x", "b"}, {});
  ASSERT_EQ(any.graphs.size(), 2u);
  EXPECT_FALSE(any.graphs[0].has_sums());
  EXPECT_EQ(any.graphs[1].output(0), formula::Output::kWhole);
  EXPECT_EQ(any.graphs[1].output(1), formula::Output::kColumnSums);
  const AheadGraphs like = gradients_of(schema, "tanh(x + b)", {"x", "b"}, {"like b x"});
  ASSERT_EQ(like.graphs.size(), 1u);
  EXPECT_FALSE(like.graphs[0].has_sums());
  const AheadGraphs bias = gradients_of(schema, "tanh(x + b)", {"b"}, {"rows x", "broadcast b"},
                                        {Type::kFloat32, Type::kBfloat16});
  ASSERT_EQ(bias.graphs.size(), 2u);
  EXPECT_EQ(bias.graphs[1].output(0), formula::Output::kColumnSums);
  // An optional one that is not there has no gradient; parts have one each.
  const AheadGraphs halves = gradients_of(
      "f(Tensor x, Tensor? b=None) -> Tensor",
      "p, q = chunk(x, 2)\nr, s = chunk(b, 2)\nreturn (p + r) * (q + s) if b else p * q",
      {"x", "b"}, {"rows x", "broadcast b"});
  ASSERT_EQ(halves.graphs.size(), 2u);
  EXPECT_EQ(halves.graphs[0].results().size(), 4u);
  EXPECT_EQ(halves.graphs[1].results().size(), 2u);
}

TEST(Ahead, GradientsHaveAKernelForTheirSums) {
  AheadKernels kernels;
  EXPECT_TRUE(add_ahead_kernels("f_backward",
                                gradients_of("f(Tensor x, Tensor b) -> Tensor", "tanh(x + b)",
                                             {"x", "b"}, {"rows x", "broadcast b"})
                                    .graphs,
                                &kernels));
  // One kernel is for rows of whole vectors, one for others, and one adds up.
  ASSERT_EQ(kernels.names.size(), 3u);
  size_t sums = 0;
  for (size_t at = 0; (at = kernels.source.find("(PartialSums<1> p)", at)) != std::string::npos;
       ++at)
    ++sums;
  EXPECT_EQ(sums, 1u);
  for (const std::string& name : kernels.names)
    EXPECT_NE(kernels.source.find("\n" + name.substr(17, name.size() - 20) + "("),
              std::string::npos);
}

TEST(Ahead, APluginHasALimit) {
  AheadKernels kernels;
  size_t ops = 0;
  const AheadGraphs rows = graphs_of("f(Tensor x) -> Tensor", "x - mean(x)",
                                     {Type::kFloat32, Type::kFloat16, Type::kFloat64});
  size_t of_one_op = 0;
  while (add_ahead_kernels("f" + std::to_string(ops), rows.graphs, &kernels)) {
    if (++ops == 1) of_one_op = kernels.names.size();
  }
  EXPECT_EQ(kernels.names.size(), kMaxAheadKernels);
  EXPECT_EQ(ops, kMaxAheadKernels / of_one_op);
  EXPECT_EQ(std::set<std::string>(kernels.names.begin(), kernels.names.end()).size(),
            kMaxAheadKernels);
  for (const std::string& name : kernels.names) {
    const std::string plain = name.substr(17, name.size() - 20);
    EXPECT_NE(kernels.source.find("\n" + plain + "("), std::string::npos) << plain;
  }
}

TEST(Ahead, SourcesHaveALimit) {
  // Each of 600 operations depends on the one before, so that none is dropped.
  AheadKernels kernels;
  std::string text;
  std::string before = "x";
  for (int i = 0; i < 600; ++i) {
    const std::string name = "v" + std::to_string(i);
    text += name + " = tanh(" + before + " + " + std::to_string(i) + ")\n";
    before = name;
  }
  const AheadGraphs large = graphs_of("f(Tensor x) -> Tensor", text + before + " - sum(x)");
  size_t ops = 0;
  while (add_ahead_kernels("f" + std::to_string(ops), large.graphs, &kernels)) ++ops;
  EXPECT_LT(kernels.names.size(), kMaxAheadKernels);
  EXPECT_LE(kernels.source.size(), kMaxAheadSource);
  EXPECT_GT(kernels.source.size(), kMaxAheadSource / 2);
}

// Kernels that were built before are launched with the words that this library writes.
TEST(Ahead, TheLayoutHasANumber) {
  const std::string header =
      opdock_test::contents(std::filesystem::path(OPDOCK_DEVICE_DIR) / "opdock/formula_space.cuh");
  ASSERT_EQ(formula::kParameterLayout, 1);
  EXPECT_EQ(to_hex(sha256(std::string_view(header))).substr(0, 16), "6ee48fdeda762ebc")
      << "If FormulaSpace has another layout, raise kParameterLayout; then write this digest here.";
}

}  // namespace
}  // namespace opdock
