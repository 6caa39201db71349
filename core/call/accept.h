// The quick look at the arguments of a call: takes what nearly every call looks like in a few
// instructions an argument. It gives no reasons: check_arguments() looks at what it does not take,
// so nothing may be taken here that is refused there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "call/function.h"

namespace opdock {

// As check_arguments(), or NULL where that has to look.
Target* accept_arguments(const opdock_function& function, const opdock_value* args,
                         uint32_t num_args);

}  // namespace opdock
