// Finds cuBLASLt at run time and opens it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/reason.h"
#include "driver/driver.h"
#include "gemm/cublaslt_api.h"

namespace opdock::cublaslt {

// Returns the functions of the library that the process has already loaded. If there is none, opens
// the newest one that the driver supports among those in wheels, conda, CUDA_HOME and the system.
// OPDOCK_GEMM can name a library instead. Returns NULL and sets *why (gemm-library-missing,
// gemm-library-unfit) on failure. The first call decides for the whole process. Any thread; may
// block.
const Api* open_library(Driver* driver, Reason* why);

// Returns whether an earlier attempt found no library, or one that does not work here. No product
// is planned for the library after that.
bool is_known_missing();
void give_up();

}  // namespace opdock::cublaslt
