// The device vocabulary that is installed with this library: what "opdock/device.cuh" includes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "jit/compiler.h"

namespace opdock {

// Returns the vocabulary's headers, read once; empty if they are not installed.
const std::vector<SourceText>& vocabulary();

}  // namespace opdock
