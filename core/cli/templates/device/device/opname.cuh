#pragma once

#include "opdock/device.cuh"

// At most 256 threads per block. Each takes elements that are a whole grid apart.
template <class T>
OPDOCK_KERNEL(256)
opname_kernel(const T* x, T* y, float a, opdock::int64_t n) {
  using namespace opdock;
  const int64_t step = grid_blocks() * block_threads();
  for (int64_t i = block_index() * block_threads() + thread_index(); i < n; i += step)
    y[i] = from_float<T>(a * to_float(x[i]));
}
