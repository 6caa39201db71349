// SPDX-License-Identifier: Apache-2.0
#include "fused/graph_tensors.h"

#include <algorithm>

namespace opdock {
namespace {

using formula::Operand;

}  // namespace

GraphTensors read_tensors(const FusedInstance& instance, const opdock_value* args) {
  const std::vector<formula::Input>& inputs = instance.graph.inputs();
  GraphTensors tensors(instance.tensors.size());
  for (size_t i = 0; i < instance.tensors.size(); ++i)
    tensors.parts.add(operand_of(*args[instance.tensors[i]].as.tensor), inputs[i].part,
                      formula::size_of(inputs[i].type), inputs[i].name);
  tensors.list = tensors.parts.list();
  if (instance.wanted.empty()) return tensors;
  size_t rank = 0;
  for (size_t i = 0; i < instance.num_own; ++i)
    if (!inputs[i].is_grouped) rank = std::max(rank, static_cast<size_t>(tensors.list[i].rank));
  for (size_t i = instance.num_own; i < tensors.list.size(); ++i) {
    tensors.views.push_back(view_of_incoming(inputs[i], tensors.list[i], rank));
    tensors.list[i] = tensors.views.back().operand();
  }
  return tensors;
}

GraphTensors written_tensors(const FusedInstance& instance, const std::vector<Operand>& inputs,
                             const opdock_value* results) {
  GraphTensors tensors(instance.of_results.size());
  tensors.parts = result_tensors(instance, [&](size_t i) -> const opdock_tensor& {
    return *results[instance.of_results[i]].as.tensor;
  });
  tensors.list = tensors.parts.list();
  if (instance.wanted.empty()) return tensors;
  const std::vector<int64_t> shape = shape_of_formula(instance, inputs);
  for (size_t i = 0; i < tensors.list.size(); ++i) {
    tensors.views.push_back(view_of_gradient(instance.wanted[i], tensors.list[i], shape));
    tensors.list[i] = tensors.views.back().operand();
  }
  return tensors;
}

std::vector<int64_t> shape_of_formula(const FusedInstance& instance,
                                      const std::vector<Operand>& inputs) {
  const std::vector<Operand> own(inputs.begin(),
                                 inputs.begin() + static_cast<ptrdiff_t>(instance.num_own));
  return formula::broadcast_shape(instance.graph, own);
}

}  // namespace opdock
