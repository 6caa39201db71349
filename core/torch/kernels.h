// The functions that torch calls. torch's stable interface passes a kernel nothing that tells
// operators apart, so each operator gets functions of its own from a table.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "operator.h"

namespace opdock::torch {

using Kernel = void (*)(StableIValue* stack, uint64_t num_arguments, uint64_t num_results);

// The kernels of one operator.
struct Kernels {
  Kernel device = nullptr;
  Kernel autograd = nullptr;
};

// Returns kernels that call `op`, which they keep for as long as the process lives; none if the
// table is used up.
Kernels make_kernels(Operator op);

}  // namespace opdock::torch
