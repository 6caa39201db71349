// The addresses and numbers of a formula's call: all of it that its layouts do not say.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "formula/graph.h"
#include "fused/fused_instance.h"
#include "fused/graph_tensors.h"
#include "opdock/plugin.h"

namespace opdock {

struct CallData {
  CallData(const FusedInstance& instance, const opdock_value* args,
           const opdock_value* of_results) {
    for (size_t i = 0; i < instance.tensors.size(); ++i)
      inputs[i] = operand_of(*args[instance.tensors[i]].as.tensor).data;
    for (size_t i = 0; i < instance.of_results.size(); ++i)
      results[i] = operand_of(*of_results[instance.of_results[i]].as.tensor).data;
    for (size_t i = 0; i < instance.numbers.size(); ++i) {
      const opdock_value& value = args[instance.numbers[i]];
      scalars[i] = value.tag == OPDOCK_TAG_FLOAT
                       ? formula::Value{value.as.f64, 0}
                       : formula::Value{static_cast<double>(value.as.i64), value.as.i64};
    }
  }
  // Whether a result begins where an input does.
  bool shares(const FusedInstance& instance) const {
    const auto end = inputs.begin() + static_cast<ptrdiff_t>(instance.tensors.size());
    for (size_t i = 0; i < instance.graph.results().size(); ++i)
      if (std::find(inputs.begin(), end, results[i]) != end) return true;
    return false;
  }
  // Moves from the tensors to the parts that the graph reads and writes. offsets: in bytes, of the
  // inputs and then of the results.
  void move_to_parts(const std::vector<ptrdiff_t>& offsets, size_t num_inputs) {
    for (size_t i = 0; i < offsets.size(); ++i) {
      void*& data = i < num_inputs ? inputs[i] : results[i - num_inputs];
      data = static_cast<char*>(data) + offsets[i];
    }
  }

  // Only the call's own are initialised.
  std::array<void*, formula::kMaxInputs> inputs;
  std::array<void*, formula::kMaxResults> results;
  std::array<formula::Value, formula::kMaxScalars> scalars;
};

}  // namespace opdock
