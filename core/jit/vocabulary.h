// The device vocabulary of this library: what "opdock/device.cuh" includes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "jit/compiler.h"

namespace opdock {

// Returns the vocabulary's headers, with their digests. They are part of the library: a kernel that
// is in the cache would otherwise have to wait until thirty files are read and hashed for its key.
const std::vector<SourceText>& vocabulary();

}  // namespace opdock
