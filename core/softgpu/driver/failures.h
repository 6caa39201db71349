// Injects the failures that the configuration asks for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config.h"

namespace softgpu {

// Counts this call of `function` and returns the rule that makes it fail, or NULL. Does not return
// if the rule hangs, and aborts if the rule crashes. Thread-safe.
const Failure* strike(const char* function);

}  // namespace softgpu
