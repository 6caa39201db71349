// Random numbers: opdock.Generator, torch's generators, and the choice between them for a call.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include "frame.h"
#include "function.h"
#include "opdock/opdock.h"

namespace opdock::python {

// Creates the Python type; returns a new reference, or NULL with an error set.
PyObject* make_generator_type();

// Converts a generator argument: an opdock.Generator, a torch.Generator, a seed, or a pair (seed,
// offset). Returns false with a Python error set.
bool convert_generator(Frame& frame, const Where& where, PyObject* object, opdock_value* value);

// Reserves `count` numbers from torch's generator if a torch.Generator was given, or if no
// generator was given and the call's arrays are torch's. Then sets *out, which lives as long as the
// frame. Otherwise leaves *out unchanged, and libopdock finds the generator. Returns false with a
// Python error set.
bool reserve_from_torch(const FunctionInfo& info, Frame& frame, uint64_t count,
                        opdock_generator** out);

}  // namespace opdock::python
