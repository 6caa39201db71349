// A fast check of the arguments of a call. It accepts nearly every call in a few instructions per
// argument and gives no reasons. check_arguments() examines whatever it does not accept, so it must
// accept nothing that check_arguments() refuses.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "call/function.h"

namespace opdock {

// Returns the target as check_arguments() does, or NULL if check_arguments() has to look.
Target* accept_arguments(const opdock_function& function, const opdock_value* args,
                         uint32_t num_args);

}  // namespace opdock
