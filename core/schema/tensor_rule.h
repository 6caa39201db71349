// Rules about the tensors of a call that an op declares, and that the host checks before plan.
// docs/reference/abi.md has the grammar.
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

// Parameters are named by their positions in the schema, which are below kMaxParams.
struct TensorRule {
  enum class Kind : uint8_t {
    kRows,        // "rows x": 1 to 16 dimensions, rows without gaps, aligned elements
    kContiguous,  // "contiguous x": row-major without gaps, aligned elements
    kLike,        // "like up gate": `param` has the dtype, device and shape of `other`
    kBroadcast,   // "broadcast bias": one number for each column of `other`, the first of the rows
    kInPlace,     // "in-place x": a result may be this tensor itself
  };
  Kind kind;
  uint8_t param;
  uint8_t other;
};

// Parses an op's rules. On failure returns nullopt and sets *error (Code::kSchemaInvalid) and, if
// given, *at to the rule's number.
std::optional<std::vector<TensorRule>> parse_tensor_rules(std::span<const std::string> texts,
                                                          const Schema& schema, Reason* error,
                                                          size_t* at = nullptr);

}  // namespace opdock
