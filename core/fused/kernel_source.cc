// SPDX-License-Identifier: Apache-2.0
#include "fused/kernel_source.h"

#include <array>
#include <vector>

#include "formula/device_launch.h"
#include "formula/device_source.h"
#include "formula/rewrite.h"
#include "formula/space.h"
#include "manifest/formula_parameters.h"

namespace opdock {

std::string kernel_source(const Schema& schema, const formula::Formula& formula,
                          formula::Type type) {
  const formula::Graph graph =
      formula::with_plain_reductions(formula.graph(common_arguments(schema, type)));
  constexpr std::array<int64_t, 2> kShape = {4096, 4096}, kStrides = {4096, 1};
  const formula::Operand whole = {nullptr, 2, kShape.data(), kStrides.data()};
  std::vector<formula::Operand> inputs(graph.inputs().size(), whole);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (graph.inputs()[i].is_grouped) inputs[i] = {nullptr, 1, kShape.data(), &kStrides[1]};
  std::vector<formula::Operand> results;
  for (size_t i = 0; i < graph.results().size(); ++i) {
    formula::Operand result = whole;
    const std::vector<int64_t> shape(kShape.begin(), kShape.end());
    result.rank = static_cast<int>(formula::result_shape(graph, i, shape).size());
    if (result.rank == 1) result.strides = &kStrides[1];
    results.push_back(result);
  }
  const formula::Space space = formula::make_space(graph, inputs, results);
  formula::DeviceTraits traits;
  traits.multiprocessors = 128;
  return formula::device_source(graph, formula::plan_launch(graph, space, traits, true).shape);
}

}  // namespace opdock
