// The conversion that one CPU thread does: from elements of one dtype to another, both contiguous.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "opdock/simd_level.hpp"

namespace convert_copy {

enum class Element { kBool, kUint8, kInt32, kInt64, kFloat16, kBfloat16, kFloat32, kFloat64 };

OPDOCK_SIMD_DECLARE(void convert(Element from_type, const void* from, Element to_type, void* to,
                                 int64_t count))

}  // namespace convert_copy
