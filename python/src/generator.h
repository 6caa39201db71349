// Random numbers: opdock.Generator, torch's generators, and where a call draws from.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include "frame.h"
#include "function.h"
#include "opdock/opdock.h"

namespace opdock::python {

// Creates the Python type; a new reference or NULL with an error set.
PyObject* make_generator_type();

// Converts an argument for a Generator: an opdock.Generator, torch's, a seed, a pair (seed,
// offset). False with a Python error set.
bool convert_generator(Frame& frame, const Where& where, PyObject* object, opdock_value* value);

// Takes `count` numbers from torch's generator, where the call's arrays are torch's and nothing but
// such a generator was given, and sets *out, which lives as long as the frame. *out is left alone
// where libopdock finds the generator. False with a Python error set.
bool reserve_from_torch(const FunctionInfo& info, Frame& frame, uint64_t count,
                        opdock_generator** out);

}  // namespace opdock::python
