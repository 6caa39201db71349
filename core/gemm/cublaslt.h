// Matrix products by cuBLASLt.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gemm/gpu.h"
#include "gemm/split.h"

namespace opdock::gemm {

// Returns how much workspace the library needs in addition to the sums: the size that this thread's
// plan for the product needs, or the maximum if there is no plan yet.
uint64_t cublaslt_workspace(const opdock_call* call, const Product& p, uint32_t flags);

// Opens the library and creates this thread's handle for the device. Returns false and sets *why if
// the library cannot be used.
bool prepare_cublaslt(GpuCall* gpu, Reason* why);

Done run_cublaslt(GpuCall* gpu, const Product& p, uint32_t flags, void* workspace,
                  uint64_t workspace_bytes, Reason* why, opdock_status* status);

}  // namespace opdock::gemm
