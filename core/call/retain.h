// Lets an op keep arguments after run has returned: extension "opdock.retain/1".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/retain.h"

namespace opdock {

// The extension's table; static.
const opdock_retain* retain_extension();

}  // namespace opdock
