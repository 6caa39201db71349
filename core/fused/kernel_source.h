// The source of the kernel that a formula becomes, for people who want to read it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "formula/formula.h"
#include "schema/schema.h"

namespace opdock {

// Returns the device source of the kernel for common_arguments() of `type`, in 4096 contiguous rows
// of 4096 elements, on a GPU with warps of 32 threads. formula: over formula_parameters(schema).
// Throws formula::Error if the formula does not take tensors of that type.
std::string kernel_source(const Schema& schema, const formula::Formula& formula,
                          formula::Type type);

}  // namespace opdock
