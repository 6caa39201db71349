// Allocates device memory for `opdock run --device cuda:N` and rocm:N, through the driver, which is
// opened at run time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "opdock/plugin.h"

namespace opdock::cli {

// Each throws std::runtime_error with the driver's error number. gpu_open() is called before the
// others: it makes the device current on this thread until the program ends, and the others work on
// that device. It does nothing for the CPU.
void gpu_open(opdock_device device);
void* gpu_allocate(size_t bytes);
void gpu_copy_in(void* device, const void* host, size_t bytes);
void gpu_copy_out(void* host, const void* device, size_t bytes);

}  // namespace opdock::cli
