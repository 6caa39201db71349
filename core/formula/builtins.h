// The functions of the language: the operations, and those that are lowered to several of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formula/graph.h"

namespace opdock::formula {

enum class Builtin : uint8_t {
  kOperation,
  kClamp,
  kGelu,
  kSquare,
  kMax,
  kMin,
  kLerp,
  kSoftmax,
  kLogSoftmax,
  kVar,
  kRow,
  kColumn,
  kColumns,
  kTo,
  kChunk,
  kCat,
  kGrouped,
};

struct Function {
  Builtin builtin = Builtin::kOperation;
  Op op = Op::kConstant;     // of a kOperation
  std::optional<Type> type;  // of a kTo whose name has the type, such as "half"
  std::string_view name;
  int min_arguments = 0, max_arguments = 0;
  // An argument with a keyword may be named in a call.
  std::array<std::string_view, 3> keywords;
  std::string usage;  // such as "clamp(x, min=None, max=None)"
};

// Returns the function of that name, or nullptr.
const Function* find_function(std::string_view name);
std::vector<std::string_view> function_names();

}  // namespace opdock::formula
