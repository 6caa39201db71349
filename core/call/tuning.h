// Answers a plugin's questions from what was measured (tune/tuning.h): extension "opdock.tuning/1".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/tuning.h"

namespace opdock {

// The extension's table; static.
const opdock_tuning* tuning_extension();

}  // namespace opdock
