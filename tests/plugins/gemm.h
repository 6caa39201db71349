// A stand-in for the host's GEMM extension opdock.gemm/1, so that tests cover only the plugin: on
// the CPU it computes in double, on a GPU it records a launch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/gemm.h"

namespace opdock_test {

// Supports float32, float16 and bfloat16 without scales. run requires the workspace that plan
// requested.
const opdock_gemm_table* plain_gemm();

}  // namespace opdock_test
