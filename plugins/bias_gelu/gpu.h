// Gives CUDA's and HIP's runtimes one set of names, for the source that both compile.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef __HIPCC__
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#define GPU(name) hip##name
#else
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define GPU(name) cuda##name
#endif
