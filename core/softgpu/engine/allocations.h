// The allocations of global memory, including released ones.
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
// Returns the allocation that contains `address` or is closest to it.
Nearest nearest_allocation(uintptr_t address);

}  // namespace softgpu
