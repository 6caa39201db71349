// Rewrites the advice in error messages of libopdock and plugins for the arrays' library.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <string>

namespace opdock::python {

// Returns `text` with the ending "make it contiguous first" (opdock/tensor.hpp) replaced by the
// call of the array's library, such as "pass numpy.ascontiguousarray(…)"; returns any other text
// unchanged. array: one of the call's arrays, or NULL.
std::string advise(std::string text, PyObject* array);

}  // namespace opdock::python
