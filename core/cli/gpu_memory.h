// Device memory for `opdock run --device cuda:N` and rocm:N, by the driver, opened at run time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "opdock/plugin.h"

namespace opdock::cli {

// Each throws std::runtime_error with the driver's error number. The device is made current on this
// thread by the first, before the others, and stays so until the program ends: it is the one that
// the others work on. Does nothing for the CPU.
void gpu_open(opdock_device device);
void* gpu_allocate(size_t bytes);
void gpu_copy_in(void* device, const void* host, size_t bytes);
void gpu_copy_out(void* host, const void* device, size_t bytes);

}  // namespace opdock::cli
