// Lets an op that waits ask whether the program wants the call to end: extension "opdock.cancel/1".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/cancel.h"

namespace opdock {

// The extension's table; static.
const opdock_cancel* cancel_extension();

}  // namespace opdock
