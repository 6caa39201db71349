// The device vocabulary that is installed beside this library: what "opdock/device.cuh" includes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "jit/compiler.h"

namespace opdock {

// Its headers, read once; none where it is not installed.
const std::vector<SourceText>& vocabulary();

}  // namespace opdock
