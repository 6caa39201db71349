// Reads the launch arguments of a call of opdock.Kernel: grid, block and the named arguments. Each
// function returns false with a Python error set.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>

#include "kernel.h"

namespace opdock::python {

// Sets the Python error and returns false. exception: a name of errors.h.
bool refuse(const char* exception, const KernelInfo& kernel, const std::string& text);

// Reads an int of at least 1, or a tuple or list of up to three. what: "grid", for messages.
// Dimensions that are not given keep their values in `out`.
bool read_dims(const KernelInfo& kernel, const char* what, PyObject* object, uint32_t (&out)[3]);

// Reads a stream: a handle as an int, or a stream object of torch (cuda_stream), CuPy (ptr) or
// CUDA's protocol (__cuda_stream__).
bool read_stream(const KernelInfo& kernel, PyObject* object, void** out);

// The arguments that are given by name.
struct Extras {
  PyObject* stream = nullptr;
  opdock_launch* launch;
};

// Reads the argument `name`: shared, stream, cluster, cooperative or programmatic.
bool read_extra(const KernelInfo& kernel, PyObject* name, PyObject* object, Extras* extras);

}  // namespace opdock::python
