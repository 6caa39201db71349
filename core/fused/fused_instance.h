// A formula for arguments of certain types and ranks, ready to be run on the CPU and on GPUs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "formula/gradient.h"
#include "formula/graph.h"
#include "formula/interpreter.h"
#include "formula/operands.h"
#include "fused/cpu_code.h"
#include "fused/device_kernels.h"

namespace opdock {

struct FusedInstance {
  explicit FusedInstance(formula::Graph made)
      : graph(std::move(made)),
        on_cpu(graph),
        cpu_code(graph),
        on_gpu(graph),
        has_parts(formula::has_parts(graph)) {}

  const formula::Graph graph;
  const formula::Interpreter on_cpu;
  CpuCode cpu_code;
  FusedKernels on_gpu;
  const bool has_parts;           // whether a tensor is read or written in parts
  std::vector<uint32_t> tensors;  // the parameter of each of the graph's inputs
  std::vector<uint32_t> numbers;  // the parameter of each of its scalars
  // The op's result to which each result of the graph belongs, and the part of that. The gradient
  // of a tensor that is not there is None, and no result of the graph.
  std::vector<uint32_t> of_results;
  std::vector<formula::Part> result_parts;
  // Gradients: of each result, how it is summed and the parameter whose gradient it is. The graph's
  // last inputs are those of the formula's results. Empty: the results are the formula's.
  std::vector<formula::Wanted> wanted;
  std::vector<uint32_t> of_params;
  size_t num_own = 0;     // inputs of the graph that are the formula's
  bool has_sums = false;  // whether a call takes more than one launch, with memory between them
  // Sums along rows, for gradients whose Wanted::is_partial: by the types of operand and result.
  std::map<std::pair<formula::Type, formula::Type>, std::unique_ptr<FusedInstance>> row_sums;
};

}  // namespace opdock
