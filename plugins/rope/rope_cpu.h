// Declares the CPU kernel of rope, and the job that the plugin hands it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/rope_params.cuh"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace rope {

struct Job {
  opdock_dtype dtype;  // dtype of q and k: float32, float16, bfloat16 or float64
  Params params;       // all positions are inside of the tables
};

OPDOCK_SIMD_DECLARE(
    // Rotates tokens begin … end - 1.
    void rotate(const Job& job, int64_t begin, int64_t end))

}  // namespace rope
