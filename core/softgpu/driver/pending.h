// Finds unfinished commands for the engine, when a kernel or copy reads memory that has not been
// written.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "state.h"

namespace softgpu {

// Names the unfinished commands of other streams that may write to the allocation at `address` and
// that are not ordered with `reader`. Locks the mutex.
std::vector<std::string> pending_writes_of(const Operation& reader, uintptr_t address);

}  // namespace softgpu
