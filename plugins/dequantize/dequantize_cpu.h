// Declares the CPU kernel of dequantisation, and the job that the plugin hands it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/dequantize_params.cuh"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace dequantize {

struct Job {
  opdock_dtype dtype;  // dtype of the result: float32, float16 or bfloat16
  Params params;
};

// Dequantizes elements begin … end - 1.
OPDOCK_SIMD_DECLARE(void run(const Job& job, int64_t begin, int64_t end))

}  // namespace dequantize
