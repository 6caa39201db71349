// Shape rules give the dtype and shape of the fresh tensors in an op's results, as expressions over
// its arguments. They need no plugin code, so that symbolic shapes can be put through them.
// docs/reference/abi.md has the grammar.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/reason.h"
#include "opdock/opdock.h"
#include "schema/schema.h"

namespace opdock {

// A parsed rule. Copies share its parts.
class ShapeRule {
 public:
  struct Parts;  // what the public struct points at
  explicit ShapeRule(std::shared_ptr<const Parts> parts);

  // Returns the rule as programs see it (opdock_result.shape_rule); valid as long as any copy
  // lives.
  const opdock_shape_rule& view() const { return *view_; }

 private:
  std::shared_ptr<const Parts> parts_;
  const opdock_shape_rule* view_;
};

// Parses the rule of `result`, one of the schema's results with fresh tensors. On failure returns
// nullopt and sets *error.
std::optional<ShapeRule> parse_shape_rule(std::string_view text, const Schema& schema,
                                          const SchemaReturn& result, Reason* error);

// Parses all rules of the schema's results, in order. Returns nullopt and sets *error if one of
// them is wrong or their number is.
std::optional<std::vector<ShapeRule>> parse_shape_rules(std::span<const std::string> texts,
                                                        const Schema& schema, Reason* error);

// Counts the fresh tensors that the rule gives for these arguments (all parameters, in the schema's
// order): one for a Tensor; none or one for a Tensor?; as many as a Tensor[] has. On failure
// returns false, and *problem says why.
bool count_tensors(const ShapeRule& rule, const Schema& schema, std::span<const opdock_value> args,
                   uint32_t* count, std::string* problem);

// Computes the dtype and shape of tensor number `index`, counted from 0. Without a dtype clause the
// dtype is that of "like x", or of the first tensor argument. On failure returns false, and
// *problem says why: a tensor that is None, a dimension that does not exist, a division by zero,
// overflow, a negative size, too many dimensions.
bool evaluate(const ShapeRule& rule, const Schema& schema, std::span<const opdock_value> args,
              uint32_t index, opdock_output* out, std::string* problem);

// The maximum number of tensors in one result.
inline constexpr uint32_t kMaxTensors = 1u << 20;

}  // namespace opdock
