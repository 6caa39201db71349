// Declares the CPU kernels of products with int8 weights or 16-bit numbers, and the job that the
// plugin hands them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/activation_params.cuh"
#include "device/tile_params.cuh"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace linear {

inline constexpr int64_t kCpuRows = 4, kCpuColumns = 64;  // rows and columns of a tile

struct TileJob {
  opdock_dtype dtype;  // dtype of x: float32, float16 or bfloat16
  long long group;     // number of weights per scale; without scales, more than any weight has
  TileParams params;

  int64_t tiles_down() const { return (params.rows.count + kCpuRows - 1) / kCpuRows; }
  int64_t tiles() const { return (params.outputs + kCpuColumns - 1) / kCpuColumns * tiles_down(); }
};

// Computes tiles begin … end - 1, which are counted down each column of tiles first.
OPDOCK_SIMD_DECLARE(void product_tiles(const TileJob& job, int64_t begin, int64_t end))

}  // namespace linear
