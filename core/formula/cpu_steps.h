// A graph as the steps that compiled CPU code takes, in their order and with the pass over the row
// to which each belongs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "formula/graph.h"

namespace opdock::formula {

// A value that the code computes: like a Node, but each is one call of opdock/formula_cpu.hpp.
// Arguments come before their users.
struct CpuStep {
  enum class What : uint8_t {
    kInput,
    kScalar,
    kConstant,
    kRow,
    kColumn,
    kColumns,
    kCompute,
    kReduce
  };
  What what = What::kCompute;
  Type type = Type::kFloat32;
  uint8_t extent = kOnce;
  std::string function;  // kCompute: "mul"; kReduce: "Sum<Floats>"
  std::array<int, 3> args = {-1, -1, -1};
  uint32_t index = 0;  // kInput, kScalar
  Value value;         // kConstant
  // After how many passes over the row the value is known; a pass ends with reductions.
  int stage = 0;
  std::string name;       // of its variable
  bool is_named = false;  // by the formula

  bool is_full() const { return (extent & kPerColumn) != 0; }
};

struct CpuSteps {
  std::vector<CpuStep> all;
  std::vector<int> results;
  bool has_whole_rows = false;
  int passes = 1;
};

// graph: simplified. is_named: whether variables have the formula's names.
CpuSteps cpu_steps(const Graph& graph, bool is_named);

// Returns the type of a value in the code: "Floats", "Doubles", "Ints", "Longs" or "Bools".
std::string cpu_value_type(Type type);
// Returns the type of an element in memory: "Half", "int8_t"; "Bool" for bool.
std::string cpu_element_type(Type type);

}  // namespace opdock::formula
