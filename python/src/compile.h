// Exposes libopdock's run-time compilation to opdock._compile: modules on one device, and their
// kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include "opdock/opdock.h"

namespace opdock::python {

// Adds the classes and functions to the extension module. runtime_of: returns a Runtime's handle.
void add_compile(pybind11::module_& module, opdock_runtime* (*runtime_of)(pybind11::handle));

}  // namespace opdock::python
