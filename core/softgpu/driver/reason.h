// Reasons for a failed call of the driver, in addition to its code.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "result.h"

namespace softgpu {

// explain() stores the reason for this thread's failure: cuGetErrorString() and hipGetErrorString()
// then append it to the text of that code. enter() calls forget_reason(), so it is lost at the next
// call.
void explain(Result result, const std::string& reason);
void forget_reason();

// Returns `text`, followed by the reason if this thread has one for `result`. Valid until the
// process ends.
const char* explained(Result result, const char* text);

}  // namespace softgpu
