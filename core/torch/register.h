// Registers operators with torch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "opdock/opdock.h"

namespace opdock::torch {

// Says what happens to a tensor that requires a gradient.
enum class Gradients {
  kPython,   // a kernel in Python, which sees each call
  kGuarded,  // the recorder, or the kernel opdock_python::<name>, for the calls that are not plain
  kRefused,  // an error
};

// Implements the operator opdock::<name>, which is defined, for the CPU and for CUDA, and for
// autograd if that is guarded. is_formula: the op is a formula. Returns "" or why not.
std::string implement(opdock_function* function, const std::string& name, Gradients gradients,
                      bool is_formula);

// Returns "" or why this torch cannot have the operators.
std::string check_version();

}  // namespace opdock::torch
