// What configure() said.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine.h"

namespace softgpu {

Settings current_settings();
// Counts launches whose streams do not; starts anew with configure().
uint64_t next_launch_number();

}  // namespace softgpu
