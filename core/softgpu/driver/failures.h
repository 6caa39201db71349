// The failures that the configuration asks for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config.h"

namespace softgpu {

// Counts this call of `function` and gives the rule that strikes it, or NULL. A rule that hangs
// never returns; one that crashes aborts. Thread-safe.
const Failure* strike(const char* function);

}  // namespace softgpu
