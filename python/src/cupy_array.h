// CuPy's arrays, by their attributes: its __dlpack__ asks the driver where an array lies, and takes
// longer than all the rest of a call. What the attributes do not show plainly is left to it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include "frame.h"
#include "opdock/opdock.h"

namespace opdock::python {

// The device type of CuPy's arrays, OPDOCK_CUDA or OPDOCK_ROCM; OPDOCK_CPU if it does not say.
int32_t cupy_device_type();

// The outcome of reading an array's attributes.
enum class Read { kDone, kNotPlain, kError };  // kError: with a Python error set

// Fills in data and device of a tensor without dimensions. type: cupy_device_type().
Read cupy_address(PyObject* object, int32_t type, opdock_tensor* tensor);
// Fills in the rest, from the frame's room.
Read cupy_layout(Frame& frame, PyObject* object, opdock_tensor* tensor);

// CuPy's current stream of a device in this thread. False with a Python error set.
bool cupy_current_stream(int32_t device, void** out);

// A new, uninitialised array in C order from CuPy's own pool, on the device of `model`, an array,
// and its memory. NULL with a Python error set.
PyObject* cupy_new(PyObject* model, const opdock_output& output, opdock_device device, void** data);

}  // namespace opdock::python
