// Reserves ranges of random numbers for ops that draw some.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "call/invocation.h"

namespace opdock {

// Reserves `count` (> 0) numbers for the call and points call.generator to them. Takes the
// generator from the call's options, else from the arguments, else the resolver's own for the
// device.
opdock_status take_random_numbers(Invocation* in, const opdock_value* args, uint64_t count);

}  // namespace opdock
