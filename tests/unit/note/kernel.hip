// hipcc makes bundles of this kernel, for the tests that look into them.
// SPDX-License-Identifier: Apache-2.0
#include <hip/hip_runtime.h>

extern "C" __global__ void scale(float* x, float a) { x[threadIdx.x] *= a; }
