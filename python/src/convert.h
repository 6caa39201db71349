// Lists of arguments, converted, and seeds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include "opdock/opdock.h"

namespace opdock::python {

// A list argument with the tuple that its elements were converted from.
struct ConvertedList {
  opdock_list list;  // first: values point at it
  PyObject* items;   // the frame's
};

// The Python object of element `k` of a converted list; borrowed.
inline PyObject* list_item(const opdock_value& value, uint64_t k) {
  const ConvertedList* list = reinterpret_cast<const ConvertedList*>(value.as.list);
  return PyTuple_GET_ITEM(list->items, static_cast<Py_ssize_t>(k));
}

// A whole number of any size, NumPy's too, by its lower 64 bits. False, and no error set, for
// anything else, bools and arrays among it.
bool to_bits(PyObject* object, uint64_t* out);

}  // namespace opdock::python
