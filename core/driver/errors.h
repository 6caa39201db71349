// Errors of the drivers of both vendors. HIP took over many of CUDA's error numbers, and launches
// are refused with the same texts on both.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "driver/driver.h"

namespace opdock {

// The meaning of an error number for the caller.
struct ErrorMeaning {
  opdock_status status;
  const char* advice;
};

// Returns the meaning of a number that CUDA and HIP share; nullopt for other numbers.
std::optional<ErrorMeaning> common_meaning(int result);

// Makes the error's text: "cuInit: CUDA_ERROR_NO_DEVICE (100), no CUDA-capable device is detected;
// check …". name and text are the driver's own; NULL if it has none.
Status describe_error(const char* function, int result, const char* name, const char* text,
                      const ErrorMeaning& meaning);

// Errors for launches that are refused.
Status wrong_argument_count(uint32_t found, size_t wanted);
// All in bytes. most: the limit per block; own: the kernel's static shared memory, which counts
// too.
Status too_much_shared_memory(uint32_t found, uint32_t most, uint32_t own);

}  // namespace opdock
