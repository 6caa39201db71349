// Objects that ops make, as Python sees them: opdock.Object.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include "opdock/opdock.h"

namespace opdock::python {

// Creates the Python type; a new reference or NULL with an error set.
PyObject* make_object_type();

// Takes over one reference to `object`, also where it fails. A new reference, or NULL with an error
// set.
PyObject* wrap_object(opdock_object* object);
// The object behind an opdock.Object, borrowed; NULL, and no error, for anything else.
opdock_object* unwrap_object(PyObject* self);

}  // namespace opdock::python
