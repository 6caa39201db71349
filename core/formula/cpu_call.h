// The call of compiled CPU code (opdock/formula_cpu.h) for a call of a formula.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "formula/graph.h"
#include "formula/interpreter.h"
#include "formula/space.h"
#include "opdock/formula_cpu.h"

namespace opdock::formula {

// It takes the arguments of Interpreter::run(), and counts pieces in the same way. The space must
// outlive it.
class CpuCall {
 public:
  CpuCall(const Space& space, const void* const* inputs, void* const* results, const Value* scalars,
          size_t num_scalars);
  CpuCall(const CpuCall&) = delete;
  CpuCall& operator=(const CpuCall&) = delete;

  // Is called for a graph with sums over rows, whose code leaves the sums of chunks of rows.
  void set_sums(const Interpreter::Sums& sums);

  const opdock_formula_call* get() const { return &call_; }

 private:
  opdock_formula_call call_ = {};
  std::array<opdock_formula_tensor, kMaxInputs + kMaxResults> tensors_;
  std::array<opdock_formula_number, kMaxScalars> numbers_;
};

}  // namespace opdock::formula
