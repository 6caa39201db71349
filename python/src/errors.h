// Raises the package's exceptions (python/opdock/_errors.py) from C++.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <string>

#include "opdock/plugin.h"

namespace opdock::python {

// Names of exceptions; _errors.py has their base classes.
inline constexpr const char* kArgumentError = "ArgumentError";                // a TypeError
inline constexpr const char* kInvalidArgumentError = "InvalidArgumentError";  // a ValueError
inline constexpr const char* kInternalError = "InternalError";

// raise and raise_status set the Python error. An error that was set before becomes its __cause__,
// or remains the error if is_passed_on(). The GIL is held.
void raise(const char* exception, const std::string& message);
// Sets the exception for `status`, with libopdock's text.
void raise_status(opdock_status status, const char* text);

// Returns whether the Python error that is set must reach the program unchanged: MemoryError, and
// errors that are no Exception, such as KeyboardInterrupt. raise() leaves these in place.
bool is_passed_on();
// Clears the Python error that is set, unless is_passed_on().
void clear_error();

// Clears the Python error that is set; returns its type's name and the first line of its text.
std::string take_error_text();

// Returns str() of an object, or its type if that fails (an int of too many digits).
std::string text_of(PyObject* object);

// Returns the qualified name of an object's type: "numpy.ndarray".
std::string type_name(PyObject* object);

}  // namespace opdock::python
