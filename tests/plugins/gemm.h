// Stands in for the host's products of matrices, opdock.gemm/1, so that what is tested is the
// plugin alone: on the CPU they are computed in double, on a GPU recorded as a launch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/gemm.h"

namespace opdock_test {

// Of float32, float16 and bfloat16, without scales. Wants the workspace that its plan asks for.
const opdock_gemm_table* plain_gemm();

}  // namespace opdock_test
