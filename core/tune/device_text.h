// Describes a device in the text under which measured choices are kept for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "driver/driver.h"
#include "facts/machine.h"

namespace opdock {

// Returns "NVIDIA H200, sm_90, 132 multiprocessors"; for the CPU, its model and level. The same
// choices are taken to be the fastest on all devices with the same text. driver: the device's,
// whose facts were read; NULL for the CPU. Empty if the device does not answer.
std::string device_text(Driver* driver, opdock_device device, const opdock_device_facts& facts,
                        const MachineFacts& machine);

}  // namespace opdock
