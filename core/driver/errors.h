// What both vendors' drivers say of failures: their error numbers agree where CUDA's came first,
// and launches are refused with the same words.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "driver/driver.h"

namespace opdock {

// What an error number means for whoever called.
struct ErrorMeaning {
  opdock_status status;
  const char* advice;
};

// For the numbers that mean the same in CUDA and in HIP.
std::optional<ErrorMeaning> common_meaning(int result);

// "cuInit: CUDA_ERROR_NO_DEVICE (100), no CUDA-capable device is detected; check …". name and
// text are the driver's own; NULL: it has none.
Status describe_error(const char* function, int result, const char* name, const char* text,
                      const ErrorMeaning& meaning);

// Refusals of a launch.
Status wrong_argument_count(uint32_t found, size_t wanted);
// In bytes; most: of a block. own: the kernel's static part of it.
Status too_much_shared_memory(uint32_t found, uint32_t most, uint32_t own);

}  // namespace opdock
