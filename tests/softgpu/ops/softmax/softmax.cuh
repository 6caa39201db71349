#pragma once

#include "opdock/device.cuh"

// Each thread computes one row.
OPDOCK_KERNEL(32)
softmax_rows(const float* x, float* y, opdock::int64_t rows, opdock::int64_t length) {
  const opdock::int64_t row =
      opdock::block_index() * opdock::block_threads() + opdock::thread_index();
  if (row >= rows) return;
  x += row * length;
  y += row * length;
  float most = x[0], sum = 0;
  for (opdock::int64_t i = 1; i < length; ++i) most = x[i] > most ? x[i] : most;
  for (opdock::int64_t i = 0; i < length; ++i)
    sum += y[i] = opdock::exp2((x[i] - most) * 1.44269504f);
  for (opdock::int64_t i = 0; i < length; ++i) y[i] /= sum;
}
