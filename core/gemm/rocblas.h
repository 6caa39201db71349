// Products by rocBLAS, opened at run time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gemm/gpu.h"
#include "gemm/product.h"

namespace opdock::gemm {

// What its kernels may need beside the sums, as rocBLAS has it by default.
inline constexpr uint64_t kRocblasWorkspace = 32u << 20;

// Opens the library (the process's own, ROCM_PATH's, /opt/rocm's, the loader's) and makes this
// thread's handle for the device. False and *why: none can be used.
bool prepare_rocblas(GpuCall* gpu, Reason* why);
// Whether none can be.
bool is_rocblas_missing();

// A product without an epilogue and scales. flags: of opdock_gemm.
Done run_rocblas(GpuCall* gpu, const Product& p, uint32_t flags, void* workspace,
                 uint64_t workspace_bytes, Reason* why, opdock_status* status);

}  // namespace opdock::gemm
