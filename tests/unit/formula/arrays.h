// Tensors for the tests of formulas, and their evaluation.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "formula/evaluate.h"
#include "formula/formula.h"

namespace opdock::formula {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline size_t size_of(const std::vector<int64_t>& shape) {
  return static_cast<size_t>(
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
}

inline Array floats(std::vector<int64_t> shape, std::vector<double> values,
                    Type type = Type::kFloat64) {
  return {type, std::move(shape), std::move(values), {}};
}
inline Array floats(std::vector<double> values, Type type = Type::kFloat64) {
  const auto size = static_cast<int64_t>(values.size());
  return floats({size}, std::move(values), type);
}
inline Array integers(std::vector<int64_t> values, Type type = Type::kInt64) {
  return {type, {static_cast<int64_t>(values.size())}, {}, std::move(values)};
}

// Returns numbers between `low` and `high`, the same in each run.
inline Array random_floats(std::vector<int64_t> shape, unsigned seed, double low = -2,
                           double high = 2, Type type = Type::kFloat64) {
  std::mt19937_64 engine(seed);
  std::vector<double> values(size_of(shape));
  for (double& value : values)
    value = low + (high - low) * static_cast<double>(engine() >> 11) * 0x1p-53;
  return floats(std::move(shape), std::move(values), type);
}

// Returns the graph of a formula, whose tensors are those that it uses, in that order, with the
// types and ranks of the arrays.
inline Graph graph_of(const std::string& text, const std::vector<Array>& inputs,
                      bool is_exact = false) {
  const Formula formula(text);
  std::vector<Argument> arguments;
  for (const Array& input : inputs) {
    arguments.emplace_back();
    arguments.back().type = input.type;
    arguments.back().rank = static_cast<int>(input.shape.size());
  }
  return formula.graph(arguments, is_exact);
}

inline std::vector<Array> run(const std::string& text, const std::vector<Array>& inputs,
                              bool is_exact = false) {
  return evaluate(graph_of(text, inputs, is_exact), inputs, {});
}

}  // namespace opdock::formula
