// The allocations of global memory, also those that are released.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine.h"

namespace softgpu {

struct Nearest {
  Allocation allocation;
  bool found = false;
  bool released = false;
};
// The allocation in which `address` lies or to which it is closest.
Nearest nearest_allocation(uintptr_t address);

}  // namespace softgpu
