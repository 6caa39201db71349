// Bare launches for python_gpu.py, which takes turns between them and calls from Python.
// SPDX-License-Identifier: Apache-2.0
#include "bare_launch.h"

// Launches `count` times without waiting. NULL, or why the GPU cannot be used; the text stays.
extern "C" const char* bare_launch(int count) {
  bench::Cuda& driver = bench::cuda();
  if (!driver.problem.empty()) return driver.problem.c_str();
  for (int i = 0; i < count; ++i) driver.launch_empty();
  return nullptr;
}
