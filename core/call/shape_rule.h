// Shape rules: what an op's fresh output looks like, as an expression over its arguments that needs
// no plugin code, so that symbolic shapes can be put through it. docs/abi.md has the grammar.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/reason.h"
#include "call/schema.h"
#include "opdock/plugin.h"

namespace opdock {

// One node of an integer expression.
struct DimExpr {
  enum class Kind { kConstant, kParam, kDim, kNdim, kAdd, kSubtract, kMultiply, kDivide, kNegate };
  Kind kind = Kind::kConstant;
  int64_t constant = 0;  // kConstant; kDim: the dimension, negative from the end
  int param = -1;        // kParam, kDim, kNdim: index into the schema's parameters
  std::vector<DimExpr> operands;
};

// An element of a bracket list: one dimension, or a run of a tensor's dimensions.
struct DimItem {
  bool slice = false;
  DimExpr value;                    // !slice
  int param = -1;                   // slice: of this tensor,
  std::optional<int64_t> from, to;  // from … to-1, negative from the end, as in Python
};

struct ShapeRule {
  int like = -1;  // "like x": the parameter; -1: `dims`
  std::vector<DimItem> dims;
  std::optional<opdock_dtype> dtype;  // "dtype float32"
  int dtype_param = -1;               // "dtype like x" (a tensor) or "dtype d" (a ScalarType)
};

// Parses a rule over the schema's parameters. On failure returns nullopt and sets *error.
std::optional<ShapeRule> parse_shape_rule(std::string_view text, const Schema& schema,
                                          Reason* error);

// What the rule gives for these arguments (all parameters, in the schema's order): dtype, shape and
// contiguous row-major strides. Without a dtype clause the dtype is that of "like x", or of the
// first tensor argument. False, and *problem says why: a tensor that is None, a dimension that does
// not exist, a division by zero, overflow, a negative size, too many dimensions.
bool evaluate(const ShapeRule& rule, const Schema& schema, std::span<const opdock_value> args,
              opdock_output* out, std::string* problem);

}  // namespace opdock
