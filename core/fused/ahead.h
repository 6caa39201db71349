// Kernels and CPU code of a formula's op that are built ahead, with its plugin: those of its usual
// calls, which then need no compiler.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "formula/device_source.h"
#include "formula/formula.h"
#include "formula/graph.h"
#include "formula/type.h"
#include "schema/schema.h"
#include "schema/tensor_rule.h"

namespace opdock {

// These limits keep a plugin with many choices from taking minutes to build. Kernels beyond them
// are compiled when a call first needs them.
inline constexpr size_t kMaxChoices = 24;        // combinations of an op's choices, for each dtype
inline constexpr size_t kMaxAheadKernels = 512;  // of a plugin
inline constexpr size_t kMaxAheadSource = size_t{4} << 20;  // bytes, of a plugin's kernels
inline constexpr size_t kMaxAheadFunctions = 128;           // of a plugin's CPU code

struct AheadGraphs {
  std::vector<formula::Graph> graphs;
  bool is_whole = true;  // no combination of choices is beyond kMaxChoices
};

// Returns the graphs of calls whose tensors all have one of `types` and rows (grouped tensors
// beside integers are float32, as the scales of quantized numbers are): for each type and each
// combination of the op's bools, of the strings with which the formula compares and another one, of
// float32, float16 and bfloat16 where it takes a dtype, and of optional arguments that are there or
// not; the defaults come first. Formulas with reductions also have a graph for tensors behind the
// first one that are the same in all rows. formula: over formula_parameters(schema).
AheadGraphs ahead_graphs(const Schema& schema, const formula::Formula& formula,
                         const std::vector<formula::Type>& types);

// Returns the graphs of the gradients of these parameters, in the same calls: each tensor has rows,
// or is the same in all rows if the op has the rule "broadcast" for it. Where no rule says how a
// tensor behind the first one is shaped ("like" does), there is a graph for both, and of formulas
// with reductions for the latter; gradients of tensors that all rows share are sums over rows.
// schema: of the op that has the formula. rules: by
// its parameters.
AheadGraphs ahead_gradient_graphs(const Schema& schema, const formula::Formula& formula,
                                  const std::vector<std::string>& params,
                                  const std::vector<TensorRule>& rules,
                                  const std::vector<formula::Type>& types);

// Returns the shapes of the kernels for tensors that are contiguous, or whose rows are, with fewer
// than 2^31 elements, on GPUs of any warp size; of reductions, those for rows of whole vectors and
// at most 16384 elements. graph: with_plain_reductions(). Throws formula::Error for one that takes
// no such tensors.
std::vector<formula::DeviceShape> ahead_shapes(const formula::Graph& graph);

// Returns the name in C++, opdock::formula::OP_…<0>, under which a plugin brings the kernel whose
// device_source() is `source`. A kernel of another formula, or of another generator, has another
// name, so that it is never launched instead.
std::string ahead_name(const std::string& op, const std::string& source);

struct AheadKernels {
  std::vector<std::string> names;  // ahead_name(), each once
  std::string source;              // of all of them, as templates
};

// Adds the kernels of an op's graphs to those of a plugin, until a limit is reached. Returns false
// if some were left out.
bool add_ahead_kernels(const std::string& op, const std::vector<formula::Graph>& graphs,
                       AheadKernels* kernels);

// Returns the name, a C identifier, under which a plugin brings a graph's compiled CPU code
// (opdock_op.cpu_code). Graphs with the same code but for names have one name.
std::string cpu_code_name(const formula::Graph& graph);

struct AheadCpuCode {
  std::vector<std::string> names;  // cpu_code_name(), each once
  std::string source;              // a C++ file that defines a function of each name
};

// Adds the CPU code of an op's graphs to that of a plugin, until a limit is reached. Returns false
// if some were left out.
bool add_ahead_cpu_code(const std::vector<formula::Graph>& graphs, AheadCpuCode* code);

}  // namespace opdock
