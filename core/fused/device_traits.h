// Derives from a GPU's facts how formulas are launched on it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "formula/device_launch.h"
#include "opdock/plugin.h"

namespace opdock {

formula::DeviceTraits device_traits(const opdock_device_facts& facts);

// Returns the OPDOCK_LAUNCH_… flags of a launch: as hand-written kernels that begin with
// pdl_wait_and_trigger(), a small one may begin while the launch before it ends.
uint32_t launch_flags(const opdock_device_facts& facts, const formula::DeviceLaunch& launch);

}  // namespace opdock
