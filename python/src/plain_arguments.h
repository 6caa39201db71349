// Conversion of list arguments and of seeds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include "opdock/opdock.h"

namespace opdock::python {

// A converted list argument, with the tuple that its elements were converted from.
struct ConvertedList {
  opdock_list list;  // must come first: opdock_value points to it
  PyObject* items;   // owned by the frame
};

// Returns the Python object of element `k` of a converted list; borrowed.
inline PyObject* list_item(const opdock_value& value, uint64_t k) {
  const ConvertedList* list = reinterpret_cast<const ConvertedList*>(value.as.list);
  return PyTuple_GET_ITEM(list->items, static_cast<Py_ssize_t>(k));
}

// Stores the low 64 bits of an integer of any size, also NumPy's. Returns false, without an error
// set, for anything else, such as bools and arrays.
bool to_bits(PyObject* object, uint64_t* out);

}  // namespace opdock::python
