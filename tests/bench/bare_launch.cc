// Launches an empty kernel directly for python_gpu.py, which interleaves such launches with calls
// from Python.
// SPDX-License-Identifier: Apache-2.0
#include "bare_launch.h"

// Launches `count` times without waiting. Returns NULL, or the reason why the GPU cannot be used;
// that text stays valid.
extern "C" const char* bare_launch(int count) {
  bench::Cuda& driver = bench::cuda();
  if (!driver.problem.empty()) return driver.problem.c_str();
  for (int i = 0; i < count; ++i) driver.launch_empty();
  return nullptr;
}
