// cuBLASLt, opened at run time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/reason.h"
#include "driver/driver.h"
#include "gemm/cublaslt_api.h"

namespace opdock::cublaslt {

// The library that the process has loaded already, else the newest that the driver takes of those
// in wheels, conda, CUDA_HOME and the system; OPDOCK_GEMM may name one. NULL and *why
// (gemm-library-missing, gemm-library-unfit). The first call decides. Any thread; may block.
const Api* open_library(Driver* driver, Reason* why);

// Whether it has been found that there is none, or that it does not work here: nothing is planned
// for it any more.
bool is_known_missing();
void give_up();

}  // namespace opdock::cublaslt
