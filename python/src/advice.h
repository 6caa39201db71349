// What libopdock and plugins advise, in terms of the arrays' own library.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <string>

namespace opdock::python {

// "…; make it contiguous first" (opdock/tensor.hpp) becomes "…; pass numpy.ascontiguousarray(…)"
// for an array of NumPy, and so on; other texts stay. array: one of the call's, or NULL.
std::string advise(std::string text, PyObject* array);

}  // namespace opdock::python
