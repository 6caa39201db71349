// What host code and device code share says OPDOCK_HOST_DEVICE. It compiles as plain C++17 too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__CUDACC__) || defined(__HIP__) || defined(__HIPCC_RTC__)
#define OPDOCK_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define OPDOCK_HOST_DEVICE inline
#endif
