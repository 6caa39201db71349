// Ranges of random numbers for ops that draw some.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "call/invocation.h"

namespace opdock {

// Takes `count` (> 0) numbers for the call, from the generator of its options, else one among the
// arguments, else the resolver's own for the device, and points call.generator at them.
opdock_status take_random_numbers(Invocation* in, const opdock_value* args, uint64_t count);

}  // namespace opdock
