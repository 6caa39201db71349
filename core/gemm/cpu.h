// Matrix products on the CPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gemm/product.h"

namespace opdock::gemm {

// Uses a BLAS if it supports the dtype, else Opdock's own loop on the call's threads. Writes a
// warning to the call's log, once per process, if no BLAS is found. Returns when the product is
// complete.
void run_on_cpu(const opdock_call* call, const Product& p);

}  // namespace opdock::gemm
