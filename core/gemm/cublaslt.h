// Products by cuBLASLt.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gemm/gpu.h"
#include "gemm/split.h"

namespace opdock::gemm {

// What it may need of workspace beside the sums: what is known of the product, else the most.
uint64_t cublaslt_workspace(const opdock_call* call, const Product& p, uint32_t flags);

// Opens the library and makes this thread's handle for the device. False and *why: none can be
// used.
bool prepare_cublaslt(GpuCall* gpu, Reason* why);

Done run_cublaslt(GpuCall* gpu, const Product& p, uint32_t flags, void* workspace,
                  uint64_t workspace_bytes, Reason* why, opdock_status* status);

}  // namespace opdock::gemm
