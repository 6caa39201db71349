// nvcc makes fat binaries of this kernel, for the tests that look into them.
// SPDX-License-Identifier: Apache-2.0
extern "C" __global__ void scale(float* x, float a) { x[threadIdx.x] *= a; }
