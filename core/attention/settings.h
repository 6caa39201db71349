// The setting OPDOCK_ATTENTION.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace opdock::attention {

// Returns whether OPDOCK_ATTENTION is "own": no library is used. Read once; a privileged program
// ignores the variable.
bool prefers_own();
// Returns whether OPDOCK_ATTENTION names a library or is "cudnn": the library serves from the first
// call of a form on, without waiting until the form has earned its plan.
bool plans_at_once();
// Returns the path of a library if OPDOCK_ATTENTION is one; "" if it is empty or "cudnn".
const std::string& named_library();

}  // namespace opdock::attention
