// Shape rules: what the fresh tensors of an op's results look like, as an expression over its
// arguments that needs no plugin code, so that symbolic shapes can be put through it. docs/abi.md
// has the grammar.
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

// A parsed rule. Copies share what it is made of.
class ShapeRule {
 public:
  struct Parts;  // what the public struct points at
  explicit ShapeRule(std::shared_ptr<const Parts> parts);

  // As programs see it (opdock_result.shape_rule); lives as long as any copy.
  const opdock_shape_rule& view() const { return *view_; }

 private:
  std::shared_ptr<const Parts> parts_;
  const opdock_shape_rule* view_;
};

// Parses the rule of `result`, one of the schema's with fresh tensors. On failure returns nullopt
// and sets *error.
std::optional<ShapeRule> parse_shape_rule(std::string_view text, const Schema& schema,
                                          const SchemaReturn& result, Reason* error);

// All rules of the schema's results, in order; nullopt and *error if one is wrong or their number
// is.
std::optional<std::vector<ShapeRule>> parse_shape_rules(std::span<const std::string> texts,
                                                        const Schema& schema, Reason* error);

// How many fresh tensors the rule gives for these arguments (all parameters, in the schema's
// order): one; none or one of a Tensor?; as many as it has of a Tensor[]. False, and *problem says
// why.
bool count_tensors(const ShapeRule& rule, const Schema& schema, std::span<const opdock_value> args,
                   uint32_t* count, std::string* problem);

// The tensor number `index` of those: its dtype and shape. Without a dtype clause the dtype is that
// of "like x", or of the first tensor argument. False, and *problem says why: a tensor that is
// None, a dimension that does not exist, a division by zero, overflow, a negative size, too many
// dimensions.
bool evaluate(const ShapeRule& rule, const Schema& schema, std::span<const opdock_value> args,
              uint32_t index, opdock_output* out, std::string* problem);

// The most tensors that one result may have.
inline constexpr uint32_t kMaxTensors = 1u << 20;

}  // namespace opdock
