// Why a call of the driver failed, beyond its code.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "result.h"

namespace softgpu {

// What the drivers answer of a code, cuGetErrorString() and hipGetErrorString(), has the reason
// as well to the thread whose last call failed so. enter() forgets it.
void explain(Result result, const std::string& reason);
void forget_reason();

// `text`, with the reason if there is one for `result`. Lives as long as the process.
const char* explained(Result result, const char* text);

}  // namespace softgpu
