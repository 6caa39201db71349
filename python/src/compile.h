// What opdock._compile needs of libopdock: modules on one device, and kernels of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include "opdock/opdock.h"

namespace opdock::python {

// Adds its classes and functions to the extension module. `runtime_of` gives a Runtime's handle.
void add_compile(pybind11::module_& module, opdock_runtime* (*runtime_of)(pybind11::handle));

}  // namespace opdock::python
