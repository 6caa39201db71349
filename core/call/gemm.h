// Matrix products for plugins: extension "opdock.gemm/1".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/gemm.h"

namespace opdock {

// The extension's table; static.
const opdock_gemm_table* gemm_extension();

}  // namespace opdock
