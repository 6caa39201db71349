// The parts of a parsed shape rule.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "schema/shape_rule.h"

namespace opdock {

struct ShapeRule::Parts {
  std::string text;
  std::vector<opdock_expr> exprs;
  std::vector<opdock_dim> then, otherwise;
  opdock_shape_rule view{};  // points into the members above
};

}  // namespace opdock
