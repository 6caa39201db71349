// Functions that are made of formulas, by opdock_make_function (opdock/formula.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "opdock/opdock.h"
#include "opdock/plugin.h"

namespace opdock {

// Makes the function of a formula, or returns the one that the runtime has made of the same texts.
// schema: of the function; empty: "formula(Tensor a, Tensor b, …) -> Tensor", with the names that
// the formula uses in the order of their first use. Any thread.
//
// gradients_of: empty, or the names of tensor parameters, separated by commas: then the function
// computes their gradients, from those of the results and from the formula's own arguments.
// is_evaluated: evaluate() computes the results, in float64.
Status formula_function(opdock_runtime* runtime, const std::string& schema,
                        const std::string& formula, const std::string& gradients_of,
                        bool is_evaluated, opdock_function** out);

// Sets *out to an op that computes `formula`, or gradients of it if op->gradients_of says so, and
// is a plugin's `op` in everything else. It is made once for each op, and lives until the process
// ends. Any thread.
Status formula_op(const opdock_op* op, const char* formula, const opdock_op** out);

}  // namespace opdock
