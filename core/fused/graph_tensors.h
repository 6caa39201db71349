// The tensors of a call as the formula's graph reads and writes them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "formula/operands.h"
#include "fused/formula_arguments.h"
#include "fused/fused_instance.h"
#include "fused/gradient_results.h"
#include "opdock/plugin.h"

namespace opdock {

inline formula::Operand operand_of(const opdock_tensor& x) {
  return {static_cast<char*>(x.data) + x.byte_offset, x.ndim, x.shape, x.strides};
}

// The inputs or the results of a graph in a call.
struct GraphTensors {
  explicit GraphTensors(size_t count) : parts(count) {}

  // Memory for the shapes of parts, and of tensors that the graph sees in another shape.
  formula::Operands parts;
  std::deque<ShapedView> views;
  std::vector<formula::Operand> list;
};

GraphTensors read_tensors(const FusedInstance& instance, const opdock_value* args);

// Returns the results as the graph writes them. inputs: of read_tensors().
GraphTensors written_tensors(const FusedInstance& instance,
                             const std::vector<formula::Operand>& inputs,
                             const opdock_value* results);

// Returns the tensors that the graph's results are, or are parts of. tensor_of(i): the one of
// result i.
template <class F>
formula::Operands result_tensors(const FusedInstance& instance, const F& tensor_of) {
  formula::Operands tensors(instance.result_parts.size());
  for (size_t i = 0; i < instance.result_parts.size(); ++i) {
    const opdock_tensor& x = tensor_of(i);
    tensors.add(operand_of(x), instance.result_parts[i], formula::size_of(*type_of(x.dtype)),
                "result");
  }
  return tensors;
}

// Returns the shape to which the tensors of a formula are broadcast, without the gradients of its
// results. inputs: of read_tensors().
std::vector<int64_t> shape_of_formula(const FusedInstance& instance,
                                      const std::vector<formula::Operand>& inputs);

}  // namespace opdock
