// Reads constants in declarations: parameters' defaults, and arguments of a gradient's op.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "schema/scanner.h"
#include "schema/schema.h"

namespace opdock {

// Reads a constant of `type`, or None if the type is optional. An error is recorded in `in`.
SchemaDefault parse_default(Scanner* in, const SchemaType& type);

// Returns the constant as schemas spell it: "1.0", "None", "[1, 2]".
std::string to_text(const SchemaDefault& value);

}  // namespace opdock
