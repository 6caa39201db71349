// CUDA memory for `opdock run --device cuda:N`, by the driver, opened at run time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace opdock::cli {

// Each throws std::runtime_error with the driver's error number. The device's primary context is
// made current on this thread by the first, and stays so until the program ends.
void cuda_open(int device);
void* cuda_allocate(size_t bytes);
void cuda_copy_in(void* device, const void* host, size_t bytes);
void cuda_copy_out(void* host, const void* device, size_t bytes);

}  // namespace opdock::cli
