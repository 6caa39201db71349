// Commands that are not done, asked by the engine when a kernel or copy reads what nothing has
// written yet.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "state.h"

namespace softgpu {

// What they are: those of other streams that may write to the allocation at `address` and are in no
// order with `reader`. Takes the mutex.
std::vector<std::string> pending_writes_of(const Operation& reader, uintptr_t address);

}  // namespace softgpu
