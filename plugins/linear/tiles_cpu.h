// Products on the CPU, with int8 weights or of 16-bit numbers: what the plugin hands to the
// kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/activation_params.cuh"
#include "device/tile_params.cuh"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace linear {

inline constexpr int64_t kCpuRows = 4, kCpuColumns = 64;  // of a tile

struct TileJob {
  opdock_dtype dtype;  // of x: float32, float16 or bfloat16
  long long group;     // weights for each scale; without scales above any number of weights
  TileParams params;

  int64_t tiles_down() const { return (params.rows.count + kCpuRows - 1) / kCpuRows; }
  int64_t tiles() const { return (params.outputs + kCpuColumns - 1) / kCpuColumns * tiles_down(); }
};

// Tiles begin … end - 1, those below each other first.
OPDOCK_SIMD_DECLARE(void product_tiles(const TileJob& job, int64_t begin, int64_t end))

}  // namespace linear
