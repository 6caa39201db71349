// Declares the CPU kernels of dropout, and the job that the plugin hands them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/dropout_params.cuh"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace dropout {

struct Job {
  opdock_dtype dtype;  // float32, float16, bfloat16 or float64
  Params params;
};

OPDOCK_SIMD_DECLARE(void forward(const Job& job, int64_t begin, int64_t end);
                    void backward(const Job& job, int64_t begin, int64_t end))

}  // namespace dropout
