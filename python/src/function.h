// The Python type of an op's function. A call goes by CPython's vectorcall into libopdock.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <vector>

#include "frame.h"
#include "opdock/opdock.h"

namespace opdock::python {

// What a call needs to know of its op; made once, then read only.
struct FunctionInfo {
  opdock_function* handle = nullptr;
  uint32_t num_params = 0;
  uint32_t num_positional = 0;
  uint32_t num_plain = 0;  // positional ones of type Tensor before any other
  uint32_t num_results = 0;
  uint32_t num_fresh = 0;  // results with fresh tensors
  uint64_t written = 0;    // bit i: the op writes into parameter i, such as Tensor(a!)
  bool may_block = false;
  bool is_variable = false;  // arguments decide how many tensors there are: Tensor?, Tensor[]
  bool draws = false;        // random numbers
  bool retains = false;      // arguments, after the call
  bool is_split = false;     // its arguments lie on several devices
  const opdock_function_info* declared = nullptr;
  const opdock_param* params = nullptr;
  const opdock_result* results = nullptr;
  PyObject* runtime = nullptr;  // keeps the handle alive
  std::string name;
  std::string asked_for;  // by which name it was looked up: "softmax" or "plugin/softmax"
  std::vector<PyObject*> param_names;  // interned
};

struct FunctionObject {
  PyObject base;
  vectorcallfunc vectorcall;
  FunctionInfo* info;
  PyObject* weak_references;
};

inline FunctionInfo& info_of(PyObject* self) {
  return *reinterpret_cast<FunctionObject*>(self)->info;
}

// Creates the Python type; a new reference or NULL with an error set.
PyObject* make_function_type();

// A function object for the handle, which `runtime` (a Python object) keeps alive. A new reference,
// or NULL with an error set.
PyObject* make_function(PyObject* type, PyObject* runtime, opdock_function* handle,
                        const std::string& asked_for);
// The handle of a function object, or NULL with a TypeError set.
const FunctionInfo* function_info(PyObject* object);

// A call of a function object, by CPython's vectorcall convention.
PyObject* call_function(PyObject* self, PyObject* const* args, size_t flagged_count,
                        PyObject* names);

// ---- the steps of a call; each returns false or NULL with a Python error set

// Puts the arguments into the schema's order and converts them. objects[i] is the i-th parameter's
// argument, borrowed, or NULL where the default stands; the first `done` are converted already and
// in place. *out: the `out=` argument or NULL.
bool bind_arguments(const FunctionInfo& info, Frame& frame, PyObject* const* args,
                    Py_ssize_t num_args, PyObject* names, uint32_t done, opdock_value* values,
                    PyObject** objects, PyObject** out);

// Converts an argument other than by its parameter's default.
bool convert_argument(Frame& frame, const Where& where, const opdock_param& param, PyObject* object,
                      opdock_value* value);

// A default as a Python object, for signatures; a new reference.
PyObject* value_to_python(const opdock_value& value);

}  // namespace opdock::python
