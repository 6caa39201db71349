// Reads CuPy arrays by their attributes: CuPy's __dlpack__ asks the driver where an array is, which
// takes longer than the rest of a call. Arrays whose attributes are not plain are left to
// __dlpack__.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include "frame.h"
#include "opdock/opdock.h"

namespace opdock::python {

// Returns the device type of CuPy's arrays, OPDOCK_CUDA or OPDOCK_ROCM; OPDOCK_CPU if unknown.
int32_t cupy_device_type();

// The outcome of reading an array's attributes.
enum class Read { kDone, kNotPlain, kError };  // kError: with a Python error set

// Fills in the data and device of *tensor, with no dimensions. type: cupy_device_type().
Read cupy_address(PyObject* object, int32_t type, opdock_tensor* tensor);
// Fills in the dtype, shape and strides, with memory from the frame.
Read cupy_layout(Frame& frame, PyObject* object, opdock_tensor* tensor);

// Gets this thread's current CuPy stream of a device. Returns false with a Python error set.
bool cupy_current_stream(int32_t device, void** out);

// Returns a new, uninitialised array in C order from CuPy's pool, on the device of the array
// `model`, and sets *data to its memory. Returns NULL with a Python error set.
PyObject* cupy_new(PyObject* model, const opdock_output& output, opdock_device device, void** data);

}  // namespace opdock::python
