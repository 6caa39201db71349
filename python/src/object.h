// The Python type opdock.Object, for objects that ops create.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include "opdock/opdock.h"

namespace opdock::python {

// Creates the Python type; returns a new reference, or NULL with an error set.
PyObject* make_object_type();

// Wraps an object; takes over one reference to it, also on failure. Returns a new reference, or
// NULL with an error set.
PyObject* wrap_object(opdock_object* object);
// Returns the object behind an opdock.Object, borrowed; NULL without an error set for anything
// else.
opdock_object* unwrap_object(PyObject* self);

}  // namespace opdock::python
