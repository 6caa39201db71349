// Opens libopdock_torch and has it implement torch's operators.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include "torch/bridge.h"

namespace opdock::python {

// Makes torch tensors without entering torch's Python functions or DLPack: a third of the cost.
struct TorchMemory {
  decltype(&opdock_torch_allocate) allocate = nullptr;
  decltype(&opdock_torch_release) release = nullptr;
  // Returns a new Python object for a tensor; throws, or returns NULL with a Python error set.
  PyObject* (*wrap)(opdock_torch_tensor tensor) = nullptr;
};
// All NULL until the library is open, and where torch has no such functions.
extern TorchMemory torch_memory;

// Opens the library if this torch can have it.
void open_torch_library();

// Adds the functions whose names begin with torch_ to the module.
void add_torch_library(pybind11::module_& module);

}  // namespace opdock::python
