// Runs a program of instructions over blocks (cpu_program.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "formula/cpu_program.h"
#include "formula/space.h"

namespace opdock::formula {

// Elements of a piece of a long row: about ten microseconds of work, for which waking a thread pays
// off.
inline constexpr int64_t kPiece = 16384;
// The least elements of a block.
inline constexpr int64_t kMinBlock = 128;

// Returns the kernels for this machine.
const Kernels& chosen_kernels();

// Returns how many pieces of work a row is.
inline int64_t pieces_of_row(const Space& space, bool has_reductions) {
  return has_reductions ? 1 : (space.columns + kPiece - 1) / kPiece;
}

// Computes pieces begin … end - 1 of a call (Interpreter::run()).
void run_program(const CpuProgram& program, const Space& space, const void* const* inputs,
                 void* const* results, const Value* scalars, double* partial, int64_t begin,
                 int64_t end);

}  // namespace opdock::formula
