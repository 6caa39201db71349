// Aligned memory of a call's device: for outputs and workspaces.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/status.h"
#include "call/target.h"

namespace opdock {

constexpr uint64_t kAlignment = 256;  // unless more is wanted; drivers align to it

// At a multiple of `alignment`, a power of two; std::free gives it back. NULL: there is none.
void* allocate_on_host(uint64_t bytes, uint64_t alignment);

// Stream-ordered memory of the target's GPU: *memory is what is given back, *aligned lies inside it
// at a multiple of `alignment`, a power of two.
Status allocate_on_device(const Target& target, void* stream, uint64_t bytes, uint64_t alignment,
                          void** memory, void** aligned);

}  // namespace opdock
