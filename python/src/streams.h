// Streams of libraries that show theirs in Python only, and waiting for a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>

#include "opdock/plugin.h"

namespace opdock::python {

// The CUstream or hipStream_t of a stream of torch's or CuPy's, of an object with __cuda_stream__
// (https://nvidia.github.io/cuda-python/cuda-core/latest/interoperability.html), or of an address
// as an int; not of a bool. False, and no error set, for anything else. Holds the GIL.
bool stream_address(PyObject* object, void** out);
inline constexpr const char* kWantedStream =
    "a stream of torch's, CuPy's or another with __cuda_stream__, or its address as an int";

// The number by which __dlpack__(stream=…) knows `stream` (a CUstream or hipStream_t); -1, "do not
// synchronise", if `own`. A new reference, or NULL with an error set.
PyObject* protocol_stream(int32_t device_type, void* stream, bool own);

// Blocks until the work enqueued on the stream is done, through the driver that the arrays' library
// has already opened. OPDOCK_DEVICE_LOST, if something that ran there has failed the device for
// good, or OPDOCK_DEVICE_ERROR, also if there is no such driver, with a text. Call without the GIL.
opdock_status wait_for_stream(opdock_device device, void* stream, std::string* problem);

}  // namespace opdock::python
