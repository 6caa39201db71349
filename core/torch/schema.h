// Writes the schema of an operator as torch's dispatcher reads it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "operator.h"

namespace opdock::torch {

// Returns the operator's schema, the same that the Python package makes (_schema.py says how it
// differs from the op's own); "" if torch has no such operators.
std::string schema(const Operator& op);

}  // namespace opdock::torch
