// Gradients of an op, declared as calls of another op of the same plugin. docs/reference/abi.md has
// the grammar.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/reason.h"
#include "schema/schema.h"

namespace opdock {

// The argument that the gradient's op gets for one of its parameters.
struct GradientArg {
  uint32_t kind = 0;   // OPDOCK_GRADIENT_…
  uint32_t index = 0;  // of the parameter, the result, or the result of the incoming gradient
  SchemaDefault constant;
};

// The gradient of one or several parameters.
struct Gradient {
  std::vector<uint32_t> params;
  std::vector<uint32_t> results;  // for each of `params`, the result of `op` that is its gradient
  std::string op;                 // empty: the parameters have no gradient
  std::string why;                // the reason, if there is no gradient
  std::vector<GradientArg> args;  // one for each parameter of `op`
};

// Parses an op's declarations and checks them against `schema`, the op's own, and `ops`, the
// schemas of all ops of its plugin: names, types, and that every tensor parameter has a gradient or
// a reason for having none. On failure returns nullopt and sets *error (Code::kSchemaInvalid) and,
// if given, *at to the declaration's number.
std::optional<std::vector<Gradient>> parse_gradients(std::span<const std::string> texts,
                                                     const Schema& schema,
                                                     std::span<const Schema> ops, Reason* error,
                                                     size_t* at = nullptr);

}  // namespace opdock
