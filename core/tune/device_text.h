// What a device is called where measured choices are kept for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "driver/driver.h"
#include "facts/machine.h"

namespace opdock {

// Devices of one text are taken to be fast in the same ways: "NVIDIA H200, sm_90, 132
// multiprocessors"; of the CPU its model and level. driver: of the device, whose facts were read;
// NULL for the CPU. Empty if the device does not tell.
std::string device_text(Driver* driver, opdock_device device, const opdock_device_facts& facts,
                        const MachineFacts& machine);

}  // namespace opdock
