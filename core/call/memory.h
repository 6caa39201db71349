// Aligned memory on a call's device, for outputs and workspaces.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/status.h"
#include "call/target.h"

namespace opdock {

constexpr uint64_t kAlignment = 256;  // default; drivers align to it

// Allocates host memory at a multiple of `alignment`, a power of two. std::free releases it.
// Returns NULL on failure.
void* allocate_on_host(uint64_t bytes, uint64_t alignment);

// Allocates stream-ordered memory on the target's GPU. The caller releases *memory; *aligned lies
// inside it at a multiple of `alignment`, a power of two.
Status allocate_on_device(const Target& target, void* stream, uint64_t bytes, uint64_t alignment,
                          void** memory, void** aligned);

}  // namespace opdock
