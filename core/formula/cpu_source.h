// Compiled code for CPUs: writes a graph as C++ over Highway (opdock/formula_cpu.hpp), for any
// layout of its tensors. The interpreter (interpreter.h) computes the same without a compiler.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formula/graph.h"

namespace opdock::formula {

// Returns a C++17 file that defines the function
//
//   namespace opdock::formula::OPDOCK_SIMD_LEVEL {
//   void NAME(const opdock_formula_call* call, int64_t begin, int64_t end);
//   }
//
// which computes pieces begin … end - 1 of a call (opdock/formula_cpu.h). If the graph has sums
// over rows, these are the sums of chunks of rows. The file is one of a plugin's simd_sources:
// compiled once for each OPDOCK_SIMD_LEVEL (opdock/simd_level.hpp), with cpu_source_arguments().
// OPDOCK_SIMD_DECLARE and OPDOCK_SIMD_CHOOSE in namespace opdock::formula declare it and choose its
// level:
//
//   namespace opdock::formula {
//   OPDOCK_SIMD_DECLARE(void NAME(const opdock_formula_call* call, int64_t begin, int64_t end))
//   }
//
// If OPDOCK_SIMD_ONLY is defined as well, the file also exports extern "C" NAME, which calls it.
//
// function_name: a C identifier; throws Error for another text. Names in the code come from the
// formula, unless is_named is false: then two graphs of the same key() have the same code.
std::string cpu_source(const Graph& graph, std::string_view function_name, bool is_named = true);

// The function's name in code that is compiled while a program runs.
inline constexpr char kCodeFunction[] = "opdock_formula_code";

// Arguments that the file must be compiled with, for GCC and Clang: products and sums are not
// fused, and operations have IEEE's results.
std::vector<std::string> cpu_source_arguments();

}  // namespace opdock::formula
