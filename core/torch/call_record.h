// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "call_memory.h"
#include "operator.h"
#include "recorder.h"

namespace opdock::torch {

// Returns an argument of a call as the recorder gets it. value, given: the argument as the op gets
// it and as torch has passed it; both must live as long as what is returned.
Argument recorded_argument(const Parameter& parameter, const opdock_value& value,
                           StableIValue given, Arena* arena);

}  // namespace opdock::torch
