// Computes the shapes and dtypes of an op's results from its shape rules, without a plugin.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "base/guarded.h"
#include "call/function.h"

namespace opdock {

// Implements opdock_count_results.
opdock_status count_tensors(const opdock_function& function, std::span<const opdock_value> args,
                            uint32_t* counts, const ErrorBuffer& error);

// Implements opdock_infer_results.
opdock_status infer(const opdock_function& function, std::span<const opdock_value> args,
                    std::span<opdock_output> outputs, const ErrorBuffer& error);

}  // namespace opdock
