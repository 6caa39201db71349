// The settings that configure() has set.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine.h"

namespace softgpu {

Settings current_settings();
// Numbers the launches that have no number in a stream; configure() restarts the count.
uint64_t next_launch_number();

}  // namespace softgpu
