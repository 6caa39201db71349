// What a call of opdock.Kernel is given beside the kernel's own arguments: grid, block, and what
// stands behind them by name. Each is false with a Python error set.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>

#include "kernel.h"

namespace opdock::python {

// Sets the error and is false. exception: one of errors.h.
bool refuse(const char* exception, const KernelInfo& kernel, const std::string& text);

// An int of at least 1, or a tuple or list of up to three. what: "grid", for messages. Sizes that
// are not given stay as they are.
bool read_dims(const KernelInfo& kernel, const char* what, PyObject* object, uint32_t (&out)[3]);

// A handle as an int, or an object of torch (cuda_stream), CuPy (ptr) or CUDA's protocol.
bool read_stream(const KernelInfo& kernel, PyObject* object, void** out);

// What stands behind the arguments.
struct Extras {
  PyObject* stream = nullptr;
  opdock_launch* launch;
};

// The argument `name`: shared, stream, cluster, cooperative or programmatic.
bool read_extra(const KernelInfo& kernel, PyObject* name, PyObject* object, Extras* extras);

}  // namespace opdock::python
