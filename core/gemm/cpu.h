// Products on the CPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gemm/product.h"

namespace opdock::gemm {

// By a BLAS where it has the dtype, else by our own loop on the call's threads; that a BLAS is
// missing goes to the call's log, once in a process. Blocks until it is done.
void run_on_cpu(const opdock_call* call, const Product& p);

}  // namespace opdock::gemm
