// Raising the package's exceptions (python/opdock/_errors.py) from C++.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <string>

#include "opdock/plugin.h"

namespace opdock::python {

// Exceptions by name; see _errors.py for what each is a subclass of.
inline constexpr const char* kArgumentError = "ArgumentError";                // a TypeError
inline constexpr const char* kInvalidArgumentError = "InvalidArgumentError";  // a ValueError
inline constexpr const char* kInternalError = "InternalError";

// Each sets the Python error; an error that was set before becomes its __cause__, or stays the
// error if it is passed on. The GIL is held.
void raise(const char* exception, const std::string& message);
// The exception that stands for `status`, with libopdock's text.
void raise_status(opdock_status status, const char* text);

// Whether the Python error that is set must reach the program as it is: what is no Exception, such
// as KeyboardInterrupt, and MemoryError. raise() leaves such a one in place.
bool is_passed_on();
// Clears the error that is set, unless it is passed on.
void clear_error();

// The text of the Python error that is set, its first line only, and its type's name; clears it.
std::string take_error_text();

// str() of an object, or its type where that fails (an int of too many digits).
std::string text_of(PyObject* object);

// repr-like name of an object's type: "numpy.ndarray".
std::string type_name(PyObject* object);

}  // namespace opdock::python
