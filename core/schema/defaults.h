// Constants in declarations: defaults of parameters, and what a gradient's op is given.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "schema/scanner.h"
#include "schema/schema.h"

namespace opdock {

// Reads a constant of `type`, None too where that is optional; what is wrong is left in `in`.
SchemaDefault parse_default(Scanner* in, const SchemaType& type);

// As schemas spell it: "1.0", "None", "[1, 2]".
std::string to_text(const SchemaDefault& value);

}  // namespace opdock
