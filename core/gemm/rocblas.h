// Matrix products by rocBLAS, which is opened at run time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gemm/gpu.h"
#include "gemm/product.h"

namespace opdock::gemm {

// The workspace for the library's kernels in addition to the sums: rocBLAS's default size.
inline constexpr uint64_t kRocblasWorkspace = 32u << 20;

// Opens the library (the one already loaded, ROCM_PATH's, /opt/rocm's, or the loader's) and creates
// this thread's handle for the device. Returns false and sets *why if the library cannot be used.
bool prepare_rocblas(GpuCall* gpu, Reason* why);
// Returns whether an earlier attempt found that the library cannot be used.
bool is_rocblas_missing();

// Runs a product without an epilogue and without scales. flags: of opdock_gemm.
Done run_rocblas(GpuCall* gpu, const Product& p, uint32_t flags, void* workspace,
                 uint64_t workspace_bytes, Reason* why, opdock_status* status);

}  // namespace opdock::gemm
