// Searches in short ascending lists, such as the ends of pieces in a kernel's parameters.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/target.cuh"

namespace opdock {

// Returns the index of the first of `count` ascending numbers that is greater than `value`, or of
// the last one if none is. count: at least 1.
template <typename T>
OPDOCK_DEVICE int upper_bound(const T* numbers, int count, int64_t value) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (numbers[middle] <= value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace opdock
