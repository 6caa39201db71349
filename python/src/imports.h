// Looks up Python functions that calls need, once for each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

namespace opdock::python {

// Returns the function `name` of a module, cached in *slot for the rest of the process; borrowed,
// or NULL with an error set. The GIL is held.
inline PyObject* imported(const char* module_name, const char* name, PyObject** slot) {
  if (*slot == nullptr) [[unlikely]] {
    PyObject* module = PyImport_ImportModule(module_name);
    PyObject* found = module == nullptr ? nullptr : PyObject_GetAttrString(module, name);
    Py_XDECREF(module);
    if (*slot == nullptr) {
      *slot = found;
    } else {
      Py_XDECREF(found);  // another thread stored it first
    }
  }
  return *slot;
}

}  // namespace opdock::python
