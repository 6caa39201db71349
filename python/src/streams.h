// Reads the streams of libraries that expose them only in Python, and waits for a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>

#include "opdock/plugin.h"

namespace opdock::python {

// Stores the CUstream or hipStream_t of a torch or CuPy stream, of an object with __cuda_stream__
// (https://nvidia.github.io/cuda-python/cuda-core/latest/interoperability.html), or of an address
// as an int. Returns false, without an error set, for anything else, a bool included. The GIL is
// held.
bool stream_address(PyObject* object, void** out);
inline constexpr const char* kWantedStream =
    "a stream of torch's, CuPy's or another with __cuda_stream__, or its address as an int";

// Returns the number for `stream` (a CUstream or hipStream_t) in __dlpack__(stream=…); -1, "do not
// synchronise", if `own`. A new reference, or NULL with an error set.
PyObject* protocol_stream(int32_t device_type, void* stream, bool own);

// Blocks until the work enqueued on the stream is done, through the driver that the arrays' library
// has already loaded. Returns OPDOCK_DEVICE_LOST after a sticky error of that work, or
// OPDOCK_DEVICE_ERROR after another error or if there is no such driver; sets *problem then. Call
// it without the GIL.
opdock_status wait_for_stream(opdock_device device, void* stream, std::string* problem);

}  // namespace opdock::python
